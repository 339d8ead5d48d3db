"""`loomrl envs attack`: reward without the task, found before a policy in training finds it."""
