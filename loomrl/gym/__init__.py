"""The environment SDK: tasks in, trajectories out."""
