"""Models of tokens: built, adapted, shown pictures."""
