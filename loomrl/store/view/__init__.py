"""What people look at: metrics, lists of runs and policies, and the index of trajectories."""
