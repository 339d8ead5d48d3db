"""The adapter against the real verifiers, which cannot be installed beside vLLM. `make adapters` installs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from adapter_support import python_of_adapters

from loomrl.errors import ConfigError
from loomrl.gym.adapters.chat import Malformed, Tool, read
from loomrl.gym.adapters.verifiers import VerifiersEnvironment

HERE = Path(__file__).parent
ADD = (Tool("add", "Add.", {}),)


@pytest.mark.system
@pytest.mark.parametrize(("folder", "chosen"), [("", "not next"), ("verifiers-next", "next or v1 or graded")])
def test_rows_of_the_real_package_are_played_here(folder, chosen) -> None:
    python = python_of_adapters()
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, str(HERE / "verifiers_real.py")]
    released = {**os.environ, "PYTHONPATH": str(Path(python).parent.parent / folder)} if folder else None
    root = HERE.parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, timeout=280, env=released)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


def test_without_modules_or_library_the_error_says_what_to_do(monkeypatch):
    with pytest.raises(ConfigError, match="Set modules"):
        VerifiersEnvironment()
    monkeypatch.setitem(sys.modules, "verifiers.legacy", None)
    monkeypatch.delitem(sys.modules, "loomrl.gym.adapters.verifiers_v0", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[verifiers\]'"):
        VerifiersEnvironment({"modules": {"sums": {"module": "sums_v0"}}})


def test_calls_are_taken_out_of_what_was_said():
    said = read('So:\n<tool_call>{"name": "add", "arguments": {"first": 1}}</tool_call> ok', ADD)
    assert (said.content, [tuple(call) for call in said.calls]) == ("So:\n ok", [("add", '{"first": 1}')])


def test_without_tools_a_call_is_mere_text():
    assert read("<tool_call>{", ()) == ("<tool_call>{", ())


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>1</tool_call>",
        '<tool_call>{"name": "add"}</tool_call>',
        '<tool_call>{"name": "add", "arguments": []}</tool_call>',
        '<tool_call>{"name": ["add"], "arguments": {}}</tool_call>',
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {}}</tool_call>' * 9,
        "<tool_call>" + "[" * 15_000 + "</tool_call>",
        "<tool_call>" * 20_000,
    ],
)
def test_what_is_no_call_is_malformed(text):
    with pytest.raises(Malformed):
        read(text, ADD)
