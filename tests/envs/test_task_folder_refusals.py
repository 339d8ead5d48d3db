"""Task folders that the sandbox cannot play as they are meant are refused at the beginning, with their line."""

import shutil
from pathlib import Path

import pytest

from loomrl.envs.tasks import TaskFolders
from loomrl.errors import ConfigError
from tests.needs import needs

pytestmark = [pytest.mark.system, needs("bubblewrap")]

TASKS = Path(__file__).parent / "task_folders"
NAMES = ["greet", "repair", "tally"]


@pytest.fixture
def tasks(tmp_path):
    """The example tasks, to be changed."""
    return Path(shutil.copytree(TASKS, tmp_path / "tasks"))


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("FROM alpine:3.20", "Dockerfile line 2: FROM alpine:3.20: only python, ubuntu and debian"),
        ("FROM python:3.99-slim", "Dockerfile line 2: FROM python:3.99-slim: the sandbox's Python is"),
        ("FROM python:3.9-alpine", "only python, ubuntu and debian"),
        ("FROM ubuntu:24.04\nFROM debian:12", "Dockerfile line 3: FROM debian:12: an image of several stages"),
        ("FROM ubuntu:24.04\nRUN apt-get update && apt-get install -y no-such-package", "apt-get needs a network"),
        ("FROM ubuntu:24.04\nRUN true && \\\n  pip install numpy", "line 3: RUN true && pip install numpy: pip needs"),
        ("FROM ubuntu:24.04\nRUN --mount=type=cache,target=/x true", "it has no meaning in the sandbox"),
        ("FROM ubuntu:24.04\nCOPY nobody.txt .", "nobody.txt is not in the task's folder"),
        ("FROM ubuntu:24.04\nCOPY ../task.toml .", "leaves the task's folder"),
        ("FROM ubuntu:24.04\nCOPY guests.txt /usr/share/", "/usr/share cannot be written to"),
        ("FROM ubuntu:24.04\nADD https://example.com/x /app/", "the sandbox has no network"),
        ("FROM ubuntu:24.04\nUSER nobody", "line 3: USER nobody: it has no meaning in the sandbox"),
        ('FROM ubuntu:24.04\nENTRYPOINT ["/start"]', "it has no meaning in the sandbox"),
        ("FROM ubuntu:24.04\nENV A=$NOTHING", "nothing sets NOTHING"),
    ],
)
def test_a_dockerfile_that_cannot_be_honoured_is_refused_with_its_line(tasks, change, says):
    edit(tasks / "greet/environment/Dockerfile", "FROM ubuntu:24.04", change)
    refusal_of(tasks, "greet", says)


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("greet/task.toml", "cpus = 1", "gpus = 1", r"task.toml [environment] gpus = 1: it has no meaning"),
        ("greet/task.toml", "cpus = 1", "workdirs = 1", "[environment] workdirs = 1"),
        ("greet/task.toml", "cpus = 1", 'workdir = "/usr/src"', "/usr/src cannot be written to"),
        ("greet/task.toml", "[metadata]", "[agent_setup]\nx = 1\n[metadata]", "task.toml [agent_setup]"),
        ("greet/task.toml", "timeout_sec = 60.0", 'user = "agent"', "there is one user"),
        ("greet/task.toml", "cpus = 1", 'network_mode = "allowlist"', "the sandbox has no network"),
        ("greet/task.toml", "cpus = 1", 'env = {KEY = "${KEY}"}', "variables of this machine are not passed on"),
        ("greet/solution/solve.sh", "sed", "curl http://x\nsed", "solution/solve.sh line 2: curl http://x: curl needs"),
        ("greet/tests/test.sh", "  -w pytest==8.4.1 ", "  -w pandas ", "uvx needs a network"),
        (
            "greet/tests/test.sh",
            "apt-get install -y curl",
            "apt-get install -y no-such-package",
            "tests/test.sh line 3",
        ),
        ("tally/task.yaml", "parser_name: pytest", "parser_name: swebench", "results are read from pytest only"),
        ("tally/task.yaml", "same_shell: false", "same_shell: true", "every command has a shell of its own"),
        ("tally/run-tests.sh", "uv add pytest==8.4.1", "uv add requests", "run-tests.sh line 15: uv add requests"),
        (
            "tally/docker-compose.yaml",
            "services:",
            "services:\n  db: {}",
            "docker-compose.yaml: db: only the",
        ),
        ("tally/docker-compose.yaml", "    volumes:", "    ports: ['80:80']\n    volumes:", "ports: ['80:80']"),
        ("tally/docker-compose.yaml", "    volumes:", "    volumes:\n      - /data:/data", "no folder of this machine"),
    ],
)
def test_what_else_cannot_be_honoured_is_refused_by_name(tasks, file, old, new, says):
    edit(tasks / file, old, new)
    refusal_of(tasks, file.partition("/")[0], says)


def test_a_link_to_files_of_this_machine_is_refused(tasks):
    (tasks / "repair/environment/src/passwd").symlink_to("/etc/passwd")
    refusal_of(tasks, "repair", "environment/src/passwd: a link, which may lead to files of this machine")


def test_a_folder_to_work_in_is_needed(tasks):
    edit(tasks / "greet/environment/Dockerfile", "WORKDIR /app", "")
    edit(tasks / "greet/environment/Dockerfile", "./", "/app/")
    edit(tasks / "greet/environment/Dockerfile", "mkdir -p out", "mkdir -p /app/out")
    refusal_of(tasks, "greet", "Dockerfile: it has no WORKDIR, and / cannot be written to")


def refusal_of(folder, name, says):
    with pytest.raises(ConfigError) as caught:
        TaskFolders({"folder": str(folder)})
    others = [other for other in NAMES if other != name]
    playable = f"names=[{', '.join(others)}] can be played"
    assert f"1 of 3 tasks cannot be played in the sandbox. {playable}.\n  {name}: " in str(caught.value)
    assert says in str(caught.value)
    TaskFolders({"folder": str(folder), "names": others})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "set folder"),
        ({"folder": "no/such/folder"}, "folder='no/such/folder' is not there"),
        ({"folder": str(TASKS / "greet")}, "no folder in it has a task.toml or task.yaml"),
        ({"folder": str(TASKS), "names": ["gret"]}, r"has no tasks ['gret']. It has greet, repair, tally"),
        ({"folder": str(TASKS), "memory_mb": 512}, "greet, repair ask for more memory: set memory_mb=1024, or names"),
    ],
)
def test_settings_that_name_no_task_are_refused(settings, says):
    with pytest.raises(ConfigError) as caught:
        TaskFolders(settings)
    assert says in str(caught.value)
