"""Metrics, logs and traces: what operators' systems read."""
