"""LoomDB: what was registered, run, learnt, judged and deployed, and from what."""
