"""Files that `loomrl new` copies: small, whole, passing their checks, under names that are replaced."""
