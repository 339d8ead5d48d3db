"""Short doors for scripts and notebooks, over the machinery of the commands."""
