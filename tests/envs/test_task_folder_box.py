"""The box of task folders under the attacks on the sandbox: it gives more, and breaks no more."""

import pytest

from loomrl.envs.tasks.script import TaskRefused, lines_of, offline_script
from loomrl.envs.tasks.workspace import ALWAYS_WRITABLE, _boxes
from loomrl.gym.sandbox.proof import ESSENTIAL, attacks_on, survey
from loomrl.gym.sandbox.session import Sandbox
from tests.needs import needs

MEANT = {
    "sees_more_than_its_own_directories",  # those of the task
    "runs_the_hosts_programs",  # which is what it is for
    "imports_packages_of_the_host",  # Debian's, which apt-get installed
    "touches_a_file_that_others_have",  # times of /dev/null
    "runs_a_setuid_program",  # they are there, and give nothing: no_new_privs, and nosuid
}
"""Attacks that look for what this box gives on purpose."""


@pytest.mark.system
@needs("bubblewrap")
@pytest.mark.parametrize("share", [ESSENTIAL, pytest.param((), marks=pytest.mark.slow)], ids=["essential", "all"])
async def test_it_holds_against_everything_but_what_it_is_meant_to_give(share):
    boxes = _boxes(ALWAYS_WRITABLE)
    tried = [attack for attack in attacks_on(boxes) if not share or attack.name in share]
    assert len(tried) >= 13
    assert {breach.attack: breach.seen for breach in await survey(Sandbox(boxes), tried)}.keys() <= MEANT


def test_scripts_are_what_they_were_but_for_the_lines_that_fetch_what_is_here():
    script = (
        "#!/bin/bash\nset -e  # stop\n\napt-get update && apt-get install -y curl\n"
        "curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh\nsource $HOME/.local/bin/env\n"
        "cat > x.py <<'END'\n    pip install x\nEND\n  uv run pytest \\\n    -rA\npython3 x.py\n"
    )
    assert offline_script(script, "test.sh") == (
        "#!/bin/bash\nset -e  # stop\n\n:\n:\n:\ncat > x.py <<'END'\n    pip install x\nEND\npytest -rA\npython3 x.py\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "pip install numpy",
        "uv pip install pytest==8.4.1 numpy",
        "cd /app && npm install",
        "if ! curl -f http://localhost:8000; then exit 1; fi",
        "FOO=1 wget x",
        "python3 -m pip install x",
        "git clone https://x/y",
        "uvx -p 3.13 -w numpy pytest /tests",
        "/usr/bin/apt-get install -y no-such-package",
    ],
)
def test_a_line_that_fetches_something_else_is_refused(line):
    with pytest.raises(TaskRefused) as caught:
        offline_script(f"echo 1\n{line}\n", "test.sh")
    assert f"test.sh line 2: {line}: " in str(caught.value)


def test_lines_are_joined_where_they_are_continued():
    script = "RUN a && \\\n  # not this\n  b\n\n# nor this\nRUN c\n"
    assert [(number, text) for number, _, text in lines_of(script) if text] == [(1, "RUN a && b"), (6, "RUN c")]
    assert "".join(raw for _, raw, _ in lines_of(script)) == script
