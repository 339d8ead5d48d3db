"""Rules about text before it is stored or shown. Pure."""
