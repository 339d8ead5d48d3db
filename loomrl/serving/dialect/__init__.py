"""Wire formats of others. Each is a pure function from bodies to requests, and from answers to bodies."""
