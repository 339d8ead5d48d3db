"""Judges of what no rule can check: models and people."""
