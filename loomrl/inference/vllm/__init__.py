"""Engines on vLLM, and fleets of them in Ray actors."""
