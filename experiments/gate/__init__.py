"""The gate: suites that a version must pass, played by it and by its baseline."""
