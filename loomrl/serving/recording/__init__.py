"""A call on record: its form, its bytes, the thread that writes it, and the trajectory that it becomes part of."""
