"""`loomrl bench meta`: adaptation within an episode."""
