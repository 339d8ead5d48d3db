"""Sessions whose files last from program to program, and boxes in which more than /tmp can be written to."""

import dataclasses
from collections.abc import AsyncIterator

import pytest

from loomrl.errors import SandboxError
from loomrl.gym.sandbox import Ending, Limits, open_sandbox
from loomrl.gym.sandbox.bubblewrap import Bubblewrap
from loomrl.gym.sandbox.seccomp import FILE_CALLS, filter_program
from loomrl.gym.sandbox.session import Sandbox, SandboxSession
from tests.needs import needs

pytestmark = [pytest.mark.system, needs("bubblewrap")]
KEPT = Limits(wall_s=20.0, scratch_mb=8, keeps_files=True)


@pytest.fixture
async def session() -> AsyncIterator[SandboxSession]:
    async with open_sandbox("bubblewrap").session(limits=KEPT) as session:
        yield session


async def test_programs_find_the_files_of_those_before_them_and_not_their_processes(session: SandboxSession) -> None:
    await session.run(
        "import os, time\nopen('/tmp/note', 'w').write(str(os.getpid()))\nif not os.fork(): time.sleep(60)"
    )
    read = "import os\nprint(os.listdir('/tmp'), [pid for pid in range(3, 3000) if pid != os.getpid() and exists(pid)])"
    exists = "def exists(pid):\n    try: os.kill(pid, 0)\n    except OSError: return False\n    return True\n"
    assert (await session.run(exists + read)).output == b"['note'] []\n"
    assert not session.is_lost


@pytest.mark.parametrize("end", ["import os; os.kill(os.getppid(), 9)", "import os; os.kill(os.getppid(), 19)"])
async def test_a_program_that_ends_its_box_ends_the_session(session: SandboxSession, end: str) -> None:
    await session.run("open('/tmp/note', 'w')")
    execution = await session.run(f"{end}\nimport time\ntime.sleep(60)", wall_s=1.0)
    assert execution.ending in (Ending.SIGNALLED, Ending.TIMEOUT)
    assert session.is_lost
    with pytest.raises(SandboxError, match="the box of this session is gone, and the files with it"):
        await session.run("print(1)")


async def test_a_program_may_have_a_time_limit_of_its_own(session: SandboxSession) -> None:
    execution = await session.run("import time; time.sleep(60)", wall_s=0.3)
    assert execution.ending is Ending.TIMEOUT
    assert execution.wall_s < 2
    short = Limits(wall_s=0.3, keeps_files=True)
    async with open_sandbox("bubblewrap").session(limits=short) as hasty:
        assert (await hasty.run("import time; time.sleep(0.6)", wall_s=20.0)).ending is Ending.EXITED


def with_folders(*folders: str) -> Bubblewrap:
    boxes = open_sandbox("bubblewrap").boxes
    assert isinstance(boxes, Bubblewrap)
    return dataclasses.replace(boxes, writable=("/tmp", *folders), filter=filter_program(more=FILE_CALLS))


async def test_the_folders_that_are_named_can_be_written_to_and_no_other() -> None:
    async with Sandbox(with_folders("/app", "/data")).session(limits=KEPT) as session:
        write = "for name in '/app', '/data', '/tmp': open(name + '/x', 'w').write('x')\nopen('/x', 'w')"
        execution = await session.run(write)
        assert execution.status == 1
        assert execution.errors.endswith(b"OSError: [Errno 30] Read-only file system: '/x'\n")
        times = "import os\nos.utime('/app/x', (7, 7))\nprint(os.stat('/app/x').st_mtime)\nos.chown('/app/x', 0, 0)"
        execution = await session.run(times)
        assert execution.output == b"7.0\n"
        assert b"Error: [Errno" in execution.errors


async def test_all_folders_together_hold_no_more_than_the_limit() -> None:
    fill = "import time\nfor name in '/app', '/data': open(name + '/x', 'wb').write(bytes({}))\ntime.sleep({})"
    async with Sandbox(with_folders("/app", "/data")).session(limits=KEPT) as session:
        assert (await session.run(fill.format(3 << 20, 0.2))).ending is Ending.EXITED
        assert (await session.run(fill.format(6 << 20, 20))).ending is Ending.SIGNALLED
        assert session.is_lost
