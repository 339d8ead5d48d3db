"""Policies behind sockets: what a replica listens on, and the gateways' links to it."""
