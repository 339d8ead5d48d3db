"""The table of clients says what is installed and tested."""

import re
from pathlib import Path

from tests.needs import ROOT

SCRIPTS = Path(__file__).parent / "clients"


def test_table_of_clients_has_the_versions_and_scripts_of_the_tests() -> None:
    pinned = dict(re.findall(r"^([a-z-]+)==(\S+)$", (ROOT / "constraints-clients.txt").read_text(), re.MULTILINE))
    table = (ROOT / "docs/dialects.md").read_text().partition("## Clients")[2]
    rows = re.findall(r"^\| ([a-z-]+) \| ([\d.]+) \|.*`(\w+\.py)` \|$", table, re.MULTILINE)
    assert {name: version for name, version, _ in rows} == {name: pinned[name] for name, _, _ in rows}
    assert {script for _, _, script in rows} == {path.name for path in SCRIPTS.glob("*.py")}
