"""Control policies outside RLlib: spaces, distributions, networks, exported policies."""
