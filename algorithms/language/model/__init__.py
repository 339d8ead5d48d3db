"""Language models: construction, low-rank adaptation, vision."""
