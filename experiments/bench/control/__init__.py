"""`loomrl bench control`: PPO and SAC beside those of other libraries, at equal work."""
