"""Processes in which episodes are played."""
