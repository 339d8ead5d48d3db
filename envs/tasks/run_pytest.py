"""pytest for verifiers: what it found is left as JSON, and tests that ended the process have not passed.

Never imported: it runs in the box, as the program `pytest`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

RECORD = Path("/logs/verifier/pytest.json")
sys.path[0] = "/tools/lib"


class Outcomes:
    """The outcome of every test, by its name."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test fails with any of its phases, and passes with its call."""
        if report.failed:
            self.found[report.nodeid] = "failed"
        elif report.when == "call" or report.skipped:
            self.found.setdefault(report.nodeid, "skipped" if report.skipped else "passed")


def arguments() -> list[str]:
    """Arguments of the command line, without the report of another plugin."""
    given = iter(sys.argv[1:])
    kept = []
    for word in given:
        if word == "--ctrf":
            next(given, None)
        elif not word.startswith("--ctrf="):
            kept.append(word)
    return kept


reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.close(reading)
    import pytest

    outcomes = Outcomes()
    status = int(pytest.main(arguments(), plugins=[outcomes]))
    os.write(writing, json.dumps({"status": status, "tests": outcomes.found}).encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
os.close(writing)
with os.fdopen(reading, "rb") as stream:
    said = stream.read()
os.waitpid(child, 0)
try:
    record = json.loads(said)
except ValueError:
    print("pytest did not come to its end")
    record = {"status": 1, "tests": {}}
RECORD.parent.mkdir(parents=True, exist_ok=True)
RECORD.write_text(json.dumps(record))
sys.exit(record["status"])
