"""The release gate: checks of a policy against a suite, each with its evidence, and their verdict. Pure."""
