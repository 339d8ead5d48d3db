"""The gateway: policies behind HTTP, in other people's dialects, with every token on record."""
