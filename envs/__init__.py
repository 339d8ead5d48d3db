"""The environment pool, one file per environment."""
