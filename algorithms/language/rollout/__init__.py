"""Runners that play episodes with a policy of tokens."""
