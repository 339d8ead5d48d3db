"""Who serves, and who may call."""
