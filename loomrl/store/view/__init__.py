"""Views for people: metrics, lists of runs and policies, and the index of trajectories."""
