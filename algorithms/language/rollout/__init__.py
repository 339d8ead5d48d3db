"""Runners that play episodes with a token policy."""
