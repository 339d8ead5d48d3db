"""What a GPU does with our own code: `make gpu-check`."""
