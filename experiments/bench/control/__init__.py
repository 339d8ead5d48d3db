"""`loomrl bench control` and `loomrl bench pixels`: PPO and SAC beside those of other libraries, at equal work."""
