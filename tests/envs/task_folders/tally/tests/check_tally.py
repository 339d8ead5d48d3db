import subprocess
from pathlib import Path


def tally(file: Path) -> str:
    return subprocess.run(["bash", "/app/tally.sh", file], capture_output=True, text=True, check=True).stdout.strip()


def test_the_log_that_is_there_is_counted() -> None:
    assert tally(Path("/app/logs/day.log")) == "2"


def test_another_log_is_counted(tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text("error\n" * 7 + "no error\n")
    assert tally(tmp_path / "other.log") == "7"
