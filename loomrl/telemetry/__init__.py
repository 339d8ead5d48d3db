"""Progress and metrics."""
