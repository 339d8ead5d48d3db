"""Environments with and without one exploitable reward, for proofs of programs that look for exploits."""
