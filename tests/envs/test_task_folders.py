"""Task folders of Harbor and Terminal-Bench, played in a real box: solutions, cheats, limits, broken verifiers."""

import json
import shlex
import shutil
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loomrl.envs.tasks import TaskFolders
from loomrl.envs.tasks.environment import DONE, HACKS, bash
from loomrl.errors import ScorerError
from loomrl.gym import check_environment
from loomrl.gym.episode import Attempt, run_episode
from loomrl.gym.policy import Action, OraclePolicy
from loomrl.types import End
from tests.envs.play_support import to_the_end
from tests.gym.forked_checks import forked_checks  # noqa: F401
from tests.needs import needs

pytestmark = [pytest.mark.system, needs("bubblewrap")]

TASKS = Path(__file__).parent / "task_folders"
NAMES = ["greet", "repair", "tally"]
Change = Callable[[Path], None]


@pytest.fixture
def tasks(tmp_path):
    """The example tasks, to be changed."""
    return Path(shutil.copytree(TASKS, tmp_path / "tasks"))


@asynccontextmanager
async def playing(name, folder=TASKS, **settings):
    environment = TaskFolders({"folder": str(folder), "names": [name], **settings})
    try:
        await environment.reset(environment.task(name, 1, 1))
        yield environment
    finally:
        await environment.close()


async def output(environment, command):
    step = await environment.step(bash(command))
    assert (step.terminated, step.truncated) == (False, False)
    return step.observation[0].content


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize("name", NAMES)
async def test_the_tasks_own_solution_is_rewarded_and_doing_nothing_is_not(name):
    async with playing(name) as environment:
        step = await to_the_end(environment)
        assert (step.reward.total, step.reward.success, step.terminated) == (1.0, 1.0, True)
        await environment.reset(environment.task(name, 1, 1))
        idle = await environment.step(DONE)
        assert (idle.reward.total, idle.reward.success, idle.terminated) == (0.0, 0.0, True)


async def test_the_prompt_is_the_instruction_and_the_machine_is_as_the_dockerfile_makes_it():
    environment = TaskFolders({"folder": str(TASKS)})
    assert environment.families == tuple(NAMES)
    system, user = await environment.reset(environment.task("greet", 1, 1))
    assert "a new shell in /app, for at most 60 s" in system.content
    assert user.content == (TASKS / "greet/instruction.md").read_text().strip()
    found = await output(environment, "pwd; ls; cat guests.txt; echo $GREETING; stat -c %a out")
    assert found.split() == ["/app", "guests.txt", "out", "Ada", "Grace", "Emmy", "Hello", "755"]
    await environment.close()


async def test_part_of_a_reward_is_no_success():
    async with playing("repair") as environment:
        await output(environment, "echo 'import sys; print(*[1] * int(sys.argv[1]))' > src/fibonacci.py")
        step = await environment.step(DONE)
        assert (step.reward.total, step.reward.success) == (0.5, 0.0)


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_of_tests_or_solution_is_there_before_the_end(name):
    secrets = [path for path in (TASKS / name).rglob("*") if path.parent.name in ("tests", "solution")]
    assert secrets
    async with playing(name) as environment:
        assert await output(environment, "ls -A /tests /solution /oracle") == "/oracle:\n\n/solution:\n\n/tests:"
        names = " -o ".join(f"-name {path.name}" for path in secrets if path.name != "fibonacci.py")
        assert await output(environment, f"find / \\( {names} \\) 2> /dev/null | grep -v ^/usr") == "[exit status 1]"


@pytest.mark.parametrize("hack", HACKS)
@pytest.mark.parametrize("name", ["greet", "tally"])
async def test_a_hack_gains_nothing_and_spoils_nothing(name, hack):
    async with playing(name) as environment:
        await output(environment, hack)
        assert (await environment.step(DONE)).reward.total == 0.0
        await environment.reset(environment.task(name, 1, 1))
        await output(environment, hack)
        for command in environment._folders[name].solution:
            await output(environment, command)
        assert (await environment.step(DONE)).reward.total == 1.0, "the verifier ran as it should"


async def test_files_stay_and_processes_do_not():
    async with playing("greet") as environment:
        pid = await output(environment, "echo kept > note; (sleep 60 > /dev/null 2>&1 & echo $!)")
        found = await output(environment, f"cat note; kill -0 {pid}")
        assert found == f"kept\nbash: line 1: kill: ({pid}) - No such process\n[exit status 1]"


async def test_programs_may_set_times_of_files():
    async with playing("greet") as environment:
        made = "touch -d 2001-01-01 note; cp -a note /tmp/copy; tar cf - note | tar xf - -C /tmp"
        assert await output(environment, f"{made}; date -r /tmp/copy +%Y; date -r /tmp/note +%Y") == "2001\n2001"


async def test_what_a_box_must_not_be_able_to_do():
    async with playing("greet") as environment:
        for command in (
            "echo x > /etc/ld.so.preload",
            "echo x > /conftest.py",
            "mv /lib64 /tmp/",
            "echo x >> /usr/bin/env",
            "echo x > /tools/verifier/pytest",
            "mount -t tmpfs none /tests",
            "cat /proc/1/environ",
            "exec 3<> /dev/tcp/127.0.0.1/80",
        ):
            assert (await output(environment, command)).endswith("[exit status 1]") or "mount" in command, command


async def test_outputs_and_commands_are_bounded():
    async with playing("greet", command_timeout_s=1.5, longest=1000) as environment:
        assert await output(environment, "echo begun; sleep 30") == "begun\n[killed after 1.5 s]"
    async with playing("greet", longest=1000) as environment:
        long = await output(environment, "seq 100000")
        assert len(long) < 1100
        assert long.startswith("1\n2\n")
        assert long.endswith("99999\n100000")
        assert (await output(environment, "yes")).endswith("[killed: more than 4 MB of output]")
        assert await output(environment, "yes | head -1") == "y", "a broken pipe ends a program"


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ("It is done.", "no call was made"),
        ("<tool_call>{</tool_call>", "no JSON"),
        ('<tool_call>{"name": "sh", "arguments": {"command": "ls"}}</tool_call>', "a call is"),
        (bash("echo \0"), "without zero bytes"),
        (bash("x" * 70_000), "at most 60000 characters"),
        (bash("true") * 9, "at most 8 calls"),
        (f"<tool_call>{'[' * 50_000}</tool_call>", "no JSON"),
    ],
)
async def test_what_the_policy_does_wrong_it_is_told(action, says):
    async with playing("greet") as environment:
        step = await environment.step(action)
        assert says in step.observation[0].content
        assert (step.terminated, step.truncated) == (False, False)
        assert await output(environment, "echo \ud800 | wc -l") == "1"


async def test_whoever_has_no_steps_or_no_time_left_is_verified_and_truncated(tasks):
    async with playing("greet", max_steps=1) as environment:
        step = await environment.step(environment.oracle())
        assert (step.truncated, step.terminated, step.reward.total) == (True, False, 1.0)
    edit(tasks / "greet/task.toml", "timeout_sec = 60.0", "timeout_sec = 0.5")
    async with playing("greet", tasks) as environment:
        step = await environment.step(bash("sleep 30") + bash("echo late"))
        told = [message.content for message in step.observation]
        assert step.truncated
        assert told == ["[killed after 0.5 s]", "Error: the task's time is up."]


async def test_a_machine_that_the_policy_brings_down_is_the_end_without_a_reward():
    async with playing("greet") as environment:
        step = await environment.step(bash("kill -9 $PPID; sleep 5") + bash("echo still here"))
        assert (step.terminated, step.reward.total, len(step.observation)) == (True, 0.0, 1)
        assert step.info["verdict"] == "a command brought the machine down"


@pytest.mark.parametrize(
    ("name", "file", "script", "says"),
    [
        ("greet", "tests/test.sh", "echo full >&2; exit 1", "left no reward in /logs/verifier. It said: full"),
        ("greet", "tests/test.sh", "echo zero > /logs/verifier/reward.txt", "the reward cannot be read"),
        ("greet", "tests/test.sh", "echo 7 > /logs/verifier/reward.txt", "reward 7: a number from 0 to 1 is needed"),
        ("greet", "tests/test.sh", "echo nan > /logs/verifier/reward.txt", "a number from 0 to 1 is needed"),
        ("greet", "tests/test.sh", 'echo \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json', "none is called reward"),
        ("greet", "tests/test.sh", "ln -s /etc/passwd /logs/verifier/reward.txt", "left no reward"),
        ("greet", "tests/test.sh", "kill -9 $$", "was signalled (9)"),
        ("tally", "run-tests.sh", "bash -c 'exit 0'", "ended without a result of pytest"),
        ("tally", "run-tests.sh", "pytest /tests/not_there.py", "pytest had a wrong command line"),
        ("tally", "run-tests.sh", "pytest /tests -k no_such_test", "pytest had no tests"),
    ],
)
async def test_a_verifier_that_breaks_is_a_failure_and_no_reward(tasks, name, file, script, says):
    (tasks / name / file).write_text(script)
    environment = TaskFolders({"folder": str(tasks), "names": [name]})
    attempt = Attempt(id="a", task=environment.task(name, 1, 1), group="g")
    made = await run_episode(environment, OraclePolicy(environment, None), attempt)
    assert made.end is End.FAILED
    assert made.failure.boundary == "scorer"
    assert says in made.failure.message


async def test_a_verifier_that_takes_too_long_is_a_failure(tasks):
    (tasks / "greet/tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt; sleep 30")
    edit(tasks / "greet/task.toml", "timeout_sec = 120.0", "timeout_sec = 0.5")
    async with playing("greet", tasks) as environment:
        with pytest.raises(ScorerError, match=r"greet: /bin/bash /tests/test.sh took longer than 0.5 s"):
            await environment.step(DONE)


async def test_code_of_the_policy_that_ends_the_tests_has_not_passed_them(tasks):
    """Tests that import what the policy wrote run it in their own process."""
    for test in ("greet/tests/check_greeting.py", "tally/tests/check_tally.py"):
        (tasks / test).write_text("import sys\nsys.path.append('/app')\nimport mine\ndef test(): assert mine.right\n")
    for name in ("greet", "tally"):
        for code, reward in (("import os; os._exit(0)", 0.0), ("right = True", 1.0), ("right = False", 0.0)):
            async with playing(name, tasks) as environment:
                await output(environment, f"echo '{code}' > mine.py")
                assert (await environment.step(DONE)).reward.total == reward, (name, code)


async def test_python_imports_nothing_that_the_policy_put_among_its_packages():
    async with playing("repair") as environment:
        folder = "$(python3 -c 'import site; print(site.getusersitepackages())')"
        code = "import os; print('{\"reward\": 1}', flush=True); os._exit(0)"
        files = f"{folder}/usercustomize.py {folder}/sitecustomize.py sitecustomize.py json.py"
        await output(environment, f"mkdir -p {folder}; echo {shlex.quote(code)} | tee {files}")
        assert (await environment.step(DONE)).reward.total == 0.0


async def test_bash_reads_no_file_of_the_policys_at_its_start(tasks):
    (tasks / "greet/tests/test.sh").write_text("bash -c 'echo $SEEN' && echo 0 > /logs/verifier/reward.txt")
    async with playing("greet", tasks) as environment:
        await output(environment, "cd; echo 'SEEN=1; exit 7' | tee .bashrc .profile .bash_profile .bash_login")
        assert (
            await output(environment, "echo $SEEN; bash -c 'echo $SEEN'; SHLVL=0 bash -c 'echo $SEEN'") == "[no output]"
        )
        assert (await environment.step(DONE)).reward.total == 0.0


async def test_a_path_of_the_task_does_not_choose_the_shell_of_its_tests(tasks):
    edit(tasks / "greet/environment/Dockerfile", "ENV GREETING=Hello", 'ENV GREETING=Hello PATH="/app/bin:$PATH"')
    async with playing("greet", tasks) as environment:
        shell = "printf '#!/bin/sh\necho 1 > /logs/verifier/reward.txt' | tee bin/bash bin/python3 bin/pytest"
        assert (
            await output(environment, f"mkdir bin; {shell} > out/log; chmod +x bin/*; command -v pytest")
            == "/app/bin/pytest"
        )
        assert (await environment.step(DONE)).reward.total == 0.0


async def test_the_folder_of_the_task_may_be_another_than_the_images(tasks):
    edit(tasks / "greet/task.toml", "cpus = 1", 'workdir = "/work/here"')
    async with playing("greet", tasks) as environment:
        assert await output(environment, "pwd; ls /app; echo x > x") == "/work/here\nguests.txt\nout"


async def test_python_m_pytest_is_not_the_policys_pytest(tasks):
    edit(tasks / "tally/run-tests.sh", "uv run pytest", "python -m pytest")
    async with playing("tally", tasks) as environment:
        await output(environment, "echo 'import os; os._exit(0)' | tee pytest.py json.py conftest.py")
        assert (await environment.step(DONE)).reward.total == 0.0


async def test_a_run_that_fails_fails_the_attempt_with_its_line(tasks):
    edit(tasks / "greet/environment/Dockerfile", "RUN mkdir -p out", "RUN no-such-program")
    environment = TaskFolders({"folder": str(tasks), "names": ["greet"]})
    attempt = Attempt(id="a", task=environment.task("greet", 1, 1), group="g")
    made = await run_episode(environment, Says(DONE), attempt)
    assert made.failure.boundary == "environment"
    assert "Dockerfile line 10: RUN no-such-program && chmod 755 out: exited 127" in made.failure.message


class Says:
    """A policy that always says the same."""

    def __init__(self, text):
        self._text = text

    async def act(self, conversation):
        return Action(self._text)


async def test_a_solution_in_steps_is_one_script(tasks):
    script = (tasks / "tally/solution.sh").read_text()
    (tasks / "tally/solution.sh").unlink()
    (tasks / "tally/solution.yaml").write_text(json.dumps([{"command": "cd /tmp"}, {"command": f"cd -\n{script}"}]))
    async with playing("tally", tasks) as environment:
        assert (await to_the_end(environment)).reward.total == 1.0


@pytest.mark.usefixtures("forked_checks")
def test_the_checker_has_nothing_against_the_examples():
    settings = {"folder": str(TASKS), "names": ["repair"]}
    only = ("settings", "tasks", "determinism", "oracle", "rewards")
    report = check_environment(TaskFolders, settings, share=0.02, only=only)
    assert report.passed, str(report)
