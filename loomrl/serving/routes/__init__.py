"""The gateway's routes: each module reads from a request to its answer."""
