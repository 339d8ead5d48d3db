"""Learning from what was served: the groups of a frozen data set in the place of rollouts."""
