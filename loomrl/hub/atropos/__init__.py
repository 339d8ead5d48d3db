"""The Atropos trajectory API on top of a hub."""
