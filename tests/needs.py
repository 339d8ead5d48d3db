"""What a machine may lack, with the command that installs it: a test without it is skipped, and fails in CI."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ATROPOS, ADAPTERS = ROOT / ".venv-atropos/bin/python", ROOT / ".venv-adapters/bin/python"
INSTALL = {
    "bubblewrap": "apt-get install bubblewrap",
    "a sandbox": "apt-get install bubblewrap",
    "gVisor": "apt-get install runsc",
    "Stockfish": "apt-get install stockfish",
    "PostgreSQL": "apt-get install postgresql",
    "vLLM": "make vllm",
    "atroposlib": "make atropos",
    "OpenEnv and verifiers": "make adapters",
}


def needs(what: str) -> pytest.MarkDecorator:
    """Skips a test, or a module as its `pytestmark`, where `what` is not here. CI must have it."""
    return pytest.mark.skipif(not os.environ.get("CI") and not is_here(what), reason=reason(what))


def need(what: str) -> None:
    """Skip this test, or whoever asked for this fixture, where `what` is not here. CI must have it."""
    if not is_here(what):
        pytest.fail(f"CI {reason(what)}") if os.environ.get("CI") else pytest.skip(reason(what))


def reason(what: str) -> str:
    """Why, and what to type."""
    return f"needs {what}: {INSTALL[what]}"


def is_here(what: str) -> bool:
    """Whether this machine has it."""
    match what:
        case "bubblewrap":
            return shutil.which("bwrap") is not None
        case "a sandbox":
            return is_here("bubblewrap") or is_here("gVisor")
        case "gVisor":
            return shutil.which("runsc") is not None
        case "Stockfish":
            return bool(shutil.which("stockfish") or shutil.which("/usr/games/stockfish"))
        case "PostgreSQL":
            return postgres_binaries() is not None
        case "vLLM":
            return find_spec("vllm") is not None
        case "atroposlib":
            return ATROPOS.exists()
        case "OpenEnv and verifiers":
            return ADAPTERS.exists()
    raise ValueError(what)


def postgres_binaries() -> Path | None:
    """The folder of PostgreSQL's programs."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return installed[-1].parent if installed else None
