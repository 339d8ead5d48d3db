"""`loomrl envs check`: does an environment keep its contract?"""
