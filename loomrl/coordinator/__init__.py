"""The coordinator of an endpoint's loop: when to train, on what, what follows a failure, and when to release."""
