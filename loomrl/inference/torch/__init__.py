"""The engine in this process, on torch."""
