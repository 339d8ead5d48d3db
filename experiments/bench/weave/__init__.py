"""WEAVE measured: fronts of control, and a language policy that is steered."""
