"""Judges for rewards that no rule can check: models and people."""
