"""Engines and policies behind a URL."""
