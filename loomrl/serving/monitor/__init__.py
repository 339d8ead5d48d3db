"""The monitor: rules for every answer and action before it leaves, and the interventions after a hit."""
