"""The commands of `loomrl`, by group."""
