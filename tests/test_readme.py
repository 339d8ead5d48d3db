"""The README, typed: its files are written and its commands run as they stand there, in one folder."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.imports import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.system]

TEXT = (ROOT / "README.md").read_text()
FILES = re.findall(r"`([\w.]+\.(?:yaml|py))`[^`\n]*:\n\n```\w+\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [
    line.partition("   #")[0] for line in re.findall(r"^    ((?:python3|\.venv/bin/loomrl) .*)$", TEXT, re.MULTILINE)
]
STAYS = {"serve": "http://127.0.0.1:8000/v1/models", "console": "http://127.0.0.1:8010/runs"}
"""Commands that run until they are ended, and what they answer."""


def run_until_it_answers(words: list[str], url: str, folder: Path) -> "subprocess.Popen[bytes]":
    with (folder / f"{words[1]}.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
    deadline = time.monotonic() + 600
    while True:
        assert process.poll() is None, Path(log.name).read_text()
        assert time.monotonic() < deadline, f"{url} does not answer"
        try:
            if httpx.get(url).is_success:
                return process
        except httpx.TransportError:
            pass
        time.sleep(0.2)


def test_every_command_of_the_readme_runs_as_it_stands_there(tmp_path: Path):
    assert [name for name, _ in FILES] == ["larger.yaml", "rewards.py", "suite.yaml"]
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    ran = []
    staying = []
    try:
        for command in COMMANDS:
            words = shlex.split(command.partition(" > ")[0])
            if words[0].endswith("loomrl") and words[1] in STAYS:
                staying.append(run_until_it_answers(words, STAYS[words[1]], tmp_path))
            else:
                done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
                assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
            ran.append(words[1])
    finally:
        for process in staying:
            process.terminate()
            process.wait(120)
    assert ran == ["-c", "train", "train", "train", "evaluate", "serve", "console", "doctor", "release", "ab"]
