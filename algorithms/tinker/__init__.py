"""Training by remote hand: a server for the `tinker` client, whose loop is the caller's and whose model is ours."""
