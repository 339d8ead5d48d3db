"""What people say about what was served: data sets to learn from."""
