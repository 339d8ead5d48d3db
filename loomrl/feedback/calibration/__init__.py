"""A judge against people: how far they agree, and the map from its score to theirs."""
