"""What production teaches: rewards of what was served, and data sets of it."""
