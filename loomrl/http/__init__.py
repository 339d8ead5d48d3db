"""Servers of ours over HTTP: how they listen, what they let in, how long they wait, and how they end."""
