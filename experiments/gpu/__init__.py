"""LoomRL's own code on a GPU: `make gpu-check`."""
