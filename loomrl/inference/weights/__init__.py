"""New weights on their way from a learner to engines."""
