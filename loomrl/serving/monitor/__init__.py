"""The monitor: rules that every answer and action meets before it leaves, and what follows from a hit."""
