"""`loomrl loop`: what the coordinator's decisions need beyond the record."""
