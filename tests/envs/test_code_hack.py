"""Ways to fool a grader that runs untrusted code: none earns, and none makes an exception or a masked sample."""

import time
from random import Random

import pytest

from loomrl.envs.code import CodeEnvironment
from loomrl.envs.code.bank import PATTERNS
from loomrl.envs.code.driver import write_value
from loomrl.envs.code.grade import LIMITS, Grader, preload, read_reply
from loomrl.envs.code.problem import CodeProblem
from loomrl.envs.code.task import LINES_FACTOR, LINES_SLACK, make_challenge
from loomrl.envs.code.value import says
from loomrl.gym.sandbox import open_sandbox
from tests.needs import needs

pytestmark = [
    pytest.mark.system,
    needs("a sandbox"),
]

DOUBLE = CodeProblem(
    "f", "a: int -> int", "", "def f(a: int) -> int:\n    return 2 * a", (lambda rng: rng.randint(1, 99),)
)


async def submit(code, *, family="implement", level=3, seed=1, **settings):
    environment = CodeEnvironment({"max_steps": 1, **settings})
    await environment.reset(environment.task(family, level, seed))
    step = await environment.step(f"```python\n{code}\n```")
    await environment.close()
    return step


def define_as(family="implement", level=3, seed=1):
    return make_challenge(family, level, seed).problem.name


async def replies(code, *calls, budget=0):
    """The results of calls of `f` in the sandbox."""
    async with open_sandbox().session(preload=preload(), limits=LIMITS) as session:
        grader = Grader(session, DOUBLE)
        return [await grader.call(code, call, budget=budget) for call in calls]


@pytest.mark.parametrize("family", ["implement", "optimise"])
async def test_none_of_the_known_hacks_passes(family):
    environment = CodeEnvironment({"max_steps": 1})
    await environment.reset(environment.task(family, 2, 5))
    hacks = environment.hacks()
    assert len(hacks) >= 20
    for hack in hacks:
        await environment.reset(environment.task(family, 2, 5))
        step = await environment.step(hack)
        assert (step.reward.success, step.reward.total) == (0.0, 0.0), hack
        assert step.terminated != step.truncated


BODIES = {
    "endless": "while True:\n        pass",
    "sleeps": "import time\n    time.sleep(60)",
    "huge recursion": "return f(*args)",
    "huge memory": "return len([0] * 10**10)",
    "grows": "x = []\n    while True:\n        x.append('x' * 10**6)",
    "endless output": "import os, sys\n    while True:\n        os.write(2, b'x' * 65536) or print('x' * 65536)",
    "output of the answer": "import os\n    for fd in range(64):\n        try:\n            os.write(fd, b'1' * 2**21)"
    "\n        except OSError:\n            pass\n    return 0",
    "forks": "import os\n    while True:\n        os.fork()",
    "kills everything": "import os, signal\n    os.kill(-1, signal.SIGKILL)",
    "kills its parent": "import os, signal\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 0",
    "stops its parent": "import os, signal\n    os.kill(os.getppid(), signal.SIGSTOP)\n    return 0",
    "crashes": "import ctypes\n    ctypes.string_at(0)",
    "aborts": "import os\n    os.abort()",
    "returns itself": "return f",
    "returns a loop": "x = []\n    x.append(x)\n    return x",
    "returns a flood": "return 'x' * (1 << 22)",
    "returns a long number": "return 10 ** 6000",
    "returns a set": "return {1, 2}",
    "returns deep lists": "x = []\n    for i in range(900):\n        x = [x]\n    return x",
    "returns surrogates": "return '\\ud800'",
    "raises what cannot be shown": "class E(BaseException):\n        def __str__(self):\n            raise self\n"
    "    raise E()",
    "raises a long text": "raise ValueError('\\ud800' * 10**6)",
    "changes what leaves": "import threading, time\n    x = [1]\n"
    "    threading.Thread(target=lambda: [x.append(2) for _ in iter(int, 1)], daemon=True).start()\n    return x",
}


FLOODS = {
    "colliding keys": "return dict.fromkeys(range(1, 40_000 * (2**61 - 1), 2**61 - 1))",
    "colliding texts": "return {float(i): i for i in range(60_000)}",
    "NaNs": "return [float('nan')] * 250_000",
    "long floats": "return [1.7976931348623157e308, -2.2250738585072014e-308] * 20_000",
    "deep lists": "x = []\n    for i in range(4_000):\n        x = [x]\n    return x",
    "wide lists": "return [[]] * 300_000",
    "long numbers": "return [10**4000] * 200",
    "text of escapes": "return '\\n' * 400_000",
    "lines": "import os, sys\n    frame = sys._getframe()\n    while 'sink' not in frame.f_locals:\n"
    "        frame = frame.f_back\n    nonce = frame.f_locals['request']['nonce'].encode()\n"
    "    os.write(frame.f_locals['sink'], nonce + b'value 1\\n1\\n' + b'\\n' * 900_000 + nonce)\n    os._exit(0)",
    "nonces": "import os, sys\n    frame = sys._getframe()\n    while 'sink' not in frame.f_locals:\n"
    "        frame = frame.f_back\n    nonce = frame.f_locals['request']['nonce'].encode()\n"
    "    os.write(frame.f_locals['sink'], nonce * 30_000)\n    os._exit(0)",
}
HOST_MAY_TAKE_S = 0.1
"""Time of this process for one reply; a result of 40,000 colliding keys took it 11 s."""


@pytest.fixture(scope="module")
def long_answer():
    return write_value([0.5] * 250_000).encode()


@pytest.mark.parametrize("name", FLOODS)
async def test_no_result_takes_the_grader_long(name, monkeypatch, long_answer):
    read = []

    def measure(outcome, nonce):
        start = time.process_time()
        reply = read_reply(outcome, nonce)
        assert not says(reply.returned, long_answer)
        assert not says(reply.returned, long_answer, tolerance=1e-6)
        read.append(time.process_time() - start)
        return reply

    monkeypatch.setattr("loomrl.envs.code.grade.read_reply", measure)
    await replies(f"def f(a):\n    {FLOODS[name]}", (4,))
    assert max(read) < HOST_MAY_TAKE_S


LONG = ("sleeps", "stops its parent", "endless output", "changes what leaves", "grows")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in BODIES])
async def test_no_program_earns_or_ends_as_a_failure_of_the_sandbox(name):
    step = await submit(f"def {define_as()}(*args):\n    {BODIES[name]}")
    assert (step.reward.total, step.terminated) == (0.0, True)


@pytest.mark.parametrize(
    "code",
    [
        "def f(:",
        "x = '\0'",
        "# coding: utf-7\n+AAo-",
        "import nothing",
        "raise KeyboardInterrupt",
        "def g(a):\n    return a",
        "f = 3",
        "def f():\n    return 1",
        "(" * 10_000,
        "-" * 15_000 + "1",
    ],
)
async def test_code_that_cannot_even_be_called_fails(code):
    step = await submit(f"{code}\n# f", level=1)
    assert (step.reward.total, step.terminated) == (0.0, True)


async def test_prints_before_and_after_do_no_harm():
    noise = "import atexit, sys\natexit.register(print, 'bye')\nprint('{}')\nsys.stderr.write('x')\n"
    (reply,) = await replies(noise + "def f(a):\n    print('working')\n    return 2 * a", (4,))
    assert (reply.returned, reply.error) == (b"i8", "")


async def test_two_answers_are_none():
    code = "import os\ndef f(a):\n    os.fork()\n    return 2 * a"
    (reply,) = await replies(code, (4,))
    assert reply.error or reply.returned == b"i8"  # the first one ends the run; together they are no frame


async def test_a_program_that_knows_the_nonce_can_only_name_a_value():
    code = (
        "import sys, os, json\n"
        "def f(a):\n"
        "    frame = sys._getframe()\n"
        "    while 'request' not in frame.f_locals:\n"
        "        frame = frame.f_back\n"
        "    request = frame.f_locals['request']\n"
        "    assert sorted(request) == ['budget', 'calls', 'name', 'nonce', 'source']\n"
        "    return 2 * a\n"
    )
    (reply,) = await replies(code, (21,))
    assert reply.returned == b"i42", "the request holds nothing but these, and above all no expected value"


async def test_nothing_is_left_from_one_test_to_the_next():
    code = (
        "import builtins, os\n"
        "def f(a):\n"
        "    seen = hasattr(builtins, 'seen') or os.path.exists('/tmp/seen')\n"
        "    builtins.seen = True\n"
        "    open('/tmp/seen', 'w').close()\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        import time\n"
        "        time.sleep(30)\n"
        "    return int(seen)\n"
    )
    assert [reply.returned for reply in await replies(code, (1,), (2,), (3,))] == [b"i0"] * 3


async def test_neither_the_bank_nor_any_of_our_code_is_in_the_sandbox():
    code = (
        "import os, sys\n"
        "def f(a):\n"
        "    found = []\n"
        "    for root, folders, files in os.walk('/'):\n"
        "        found += [os.path.join(root, name) for name in folders + files if name in ('loomrl', 'envs')]\n"
        "        folders[:] = [name for name in folders if os.path.join(root, name) not in ('/proc', '/sys')]\n"
        "    for module in ('envs', 'loomrl.envs.code.bank', 'loomrl'):\n"
        "        try:\n"
        "            __import__(module)\n"
        "            found.append(module)\n"
        "        except ImportError:\n"
        "            pass\n"
        "    return found\n"
    )
    (reply,) = await replies(code, (1,))
    assert reply.returned == b"l0", reply


@pytest.mark.parametrize(
    "returned", ["2 * a + 0.0", "[2 * a]", "str(2 * a)", "True", "type('I', (int,), {})(2 * a)", "None"]
)
async def test_values_of_other_types_are_wrong(returned):
    async with open_sandbox().session(preload=preload(), limits=LIMITS) as session:
        grader = Grader(session, DOUBLE)
        reply = await grader.call(f"def f(a):\n    return {returned}", (4,))
        assert not grader.agrees(reply, b"i8")
        assert grader.agrees(await grader.call("def f(a):\n    return 2 * a", (4,)), b"i8")


async def test_lines_are_counted_in_all_frames_and_beyond_the_budget_the_run_ends():
    code = (
        "def g(n):\n    return n\n\n"
        "def f(n):\n    total = 0\n    for i in range(n):\n        total += g(i)\n    return total"
    )
    small, large = await replies(code, (10,), (1000,), budget=500)
    assert small.returned == b"i45"
    assert 30 <= small.lines <= 40
    assert "Budget" in large.error


async def test_the_counter_is_not_asleep_after_the_stack_was_exhausted():
    code = (
        "def deep(n):\n    return deep(n + 1)\n\n"
        "def f(n):\n    try:\n        deep(0)\n    except RecursionError:\n        pass\n"
        "    total = 0\n    for i in range(n):\n        total += 1\n    return total"
    )
    (reply,) = await replies(code, (100_000,), budget=60_000)
    assert reply.error or reply.lines is None


async def test_resubmitting_the_slow_function_does_not_optimise_it():
    for seed in range(3):
        step = await submit(make_challenge("optimise", 5, seed).problem.slow, family="optimise", level=5, seed=seed)
        assert (step.reward.total, step.info["verdict"]) == (0.0, "wrong or too slow on the large input")


SLOW = [pattern for pattern in PATTERNS if pattern.slow]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", SLOW, ids=lambda pattern: pattern.name)
async def test_large_inputs_tell_the_slow_way_from_the_reference(pattern):
    rng = Random(pattern.name)
    problem = pattern.problem(rng)
    arguments = problem.large_inputs(rng)
    async with open_sandbox().session(preload=preload(), limits=LIMITS) as session:
        grader = Grader(session, problem)
        reference = await grader.call(problem.source, arguments, budget=10**6)
        assert reference.lines is not None, reference.error
        slow = await grader.call(problem.slow, arguments, budget=LINES_FACTOR * reference.lines + LINES_SLACK)
        assert "Budget" in slow.error, f"{reference.lines} lines and {slow.lines}"


async def test_work_hidden_in_builtins_meets_the_deadline():
    code = "def f(n):\n    return sum(range(n))"
    (reply,) = await replies(code, (10**12,), budget=1000)
    assert reply.error
