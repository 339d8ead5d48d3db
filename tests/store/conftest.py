"""Both databases."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every promise holds on both databases."""
    if "store_url" in metafunc.fixturenames:
        metafunc.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
