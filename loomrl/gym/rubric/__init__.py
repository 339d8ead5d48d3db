"""Rubrics: a judge's verdicts by criteria as a part of the reward."""
