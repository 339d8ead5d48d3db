"""x."""

from loomrl.console.page import Pages


def add_to(pages: Pages) -> None:
    """x."""
