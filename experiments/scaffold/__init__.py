"""What `loomrl new` copies: small whole files that pass their checks, under names that are replaced."""
