"""A service as processes: on Ray Serve, behind HAProxy, following LoomDB."""
