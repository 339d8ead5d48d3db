"""Agents that import nothing of LoomRL, and the tasks on which they are trained."""
