"""Policies behind sockets: the replica's server, and the gateways' links to it."""
