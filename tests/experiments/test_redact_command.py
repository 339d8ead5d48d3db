"""`loomrl data redact` on files and standard input."""

import json
from pathlib import Path

from typer.testing import CliRunner

from loomrl.experiments.cli import app

TEXT = "ada@example.org says: the password is hunter2-x9\r\nhunter2-x9, ada@example.org\n"


def test_a_file_is_printed_as_it_would_be_stored(tmp_path: Path) -> None:
    (tmp_path / "talk.txt").write_bytes(TEXT.encode())
    done = CliRunner().invoke(app, ["data", "redact", str(tmp_path / "talk.txt")])
    assert done.exit_code == 0, done.output
    assert done.stdout_bytes == b"<email-1> says: the password is <password-1>\r\n<password-1>, <email-1>\n"


def test_findings_as_json_hold_places_and_no_text(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["data", "redact", "-", "--json"], input=TEXT)
    told = json.loads(done.stdout)
    assert told["kinds"] == {"email": 2, "password": 2}
    assert [(one["placeholder"], one["line"]) for one in told["findings"]] == [
        ("<email-1>", 1), ("<password-1>", 1), ("<password-1>", 2), ("<email-1>", 2),
    ]  # fmt: skip
    assert "hunter2" not in done.stdout


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["data", "redact", str(tmp_path / "none.txt")])
    assert done.exit_code == 2
    assert "none.txt" in "".join(line.strip("│ ") for line in done.output.splitlines())
