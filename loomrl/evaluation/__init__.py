"""Evaluation of policies, with confidence intervals."""
