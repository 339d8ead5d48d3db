"""Task collections of others as environments. Each adapter imports what it adapts when it is first used."""
