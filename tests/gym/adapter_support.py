"""Where the packages are that cannot be installed beside ours. `make adapters` installs them."""

import os
from pathlib import Path

import pytest


def python_of_adapters() -> str:
    python = Path(__file__).parent.parent.parent / ".venv-adapters" / "bin" / "python"
    if not python.exists():
        pytest.fail("CI must run `make adapters`") if os.environ.get("CI") else pytest.skip("needs `make adapters`")
    return str(python)
