"""Feedback on what was served: what people and programs say of it, and what can be seen from a session by itself."""
