"""Does an environment keep its promises? `loomrl envs check`."""
