"""The attack suite on the real sandboxes, and that it would see a sandbox that does not hold."""

import dataclasses
import struct
import subprocess
import sys

import pytest

from loomrl.errors import ConfigError, SandboxError
from loomrl.gym.sandbox import Ending, Execution, Sandbox, Slots, open_sandbox
from loomrl.gym.sandbox.attack import HELD, KERNEL_ATTACKS, whole
from loomrl.gym.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from loomrl.gym.sandbox.gvisor import find_gvisor
from loomrl.gym.sandbox.proof import ESSENTIAL, attacks_on, attempt, prove, stage_host, survey
from tests.needs import needs

needs_bubblewrap = needs("bubblewrap")
needs_gvisor = needs("gVisor")
pytestmark = pytest.mark.system

ON_BUBBLEWRAP = attacks_on(Bubblewrap)  # only asked whether it shares the host's kernel
ON_GVISOR = [attack for attack in ON_BUBBLEWRAP if not attack.on_kernel]


@pytest.fixture(scope="module")
def told():
    with stage_host() as told:
        yield told


@needs_bubblewrap
@pytest.mark.parametrize("attack", ON_BUBBLEWRAP, ids=lambda attack: attack.name)
async def test_bubblewrap_holds_against_a_program_that(attack, told):
    assert await attempt(open_sandbox("bubblewrap"), attack, told) is None


@needs_gvisor
@pytest.mark.slow
@pytest.mark.parametrize("attack", ON_GVISOR, ids=lambda attack: attack.name)
async def test_gvisor_holds_against_a_program_that(attack, told):
    assert await attempt(open_sandbox("gvisor"), attack, told) is None


def test_there_are_many_attacks_each_with_a_name_of_its_own():
    assert len({attack.name for attack in ON_BUBBLEWRAP}) == len(ON_BUBBLEWRAP) >= 100
    assert {attack.name for attack in ON_BUBBLEWRAP} >= set(ESSENTIAL)


@pytest.mark.parametrize("attack", [a for a in ON_BUBBLEWRAP if a.works_outside], ids=lambda attack: attack.name)
def test_without_a_sandbox_a_program_succeeds_that(attack, told):
    done = subprocess.run([sys.executable, "-c", attack.text], input=told, capture_output=True, check=True)
    assert done.stdout.startswith(b"breached: ")


def test_a_program_that_tries_nothing_harmful_says_that_it_was_held(told):
    done = subprocess.run([sys.executable, "-c", whole("")], input=told, capture_output=True, check=True)
    assert done.stdout == HELD


@pytest.mark.parametrize(
    "execution",
    [
        Execution(Ending.EXITED, 0, b"breached: 1", b"", 0.1),
        Execution(Ending.EXITED, 1, b"", b"SyntaxError", 0.1),
        Execution(Ending.SIGNALLED, 9, HELD, b"", 0.1),
        Execution(Ending.EXITED, 0, b"", b"", 0.1),
    ],
)
async def test_what_does_not_say_that_it_was_held_is_a_breach(execution):
    class Broken:
        async def run(self, program, *, stdin=b"", limits=None):
            return execution

    sandbox = Broken()
    assert [breach.attack for breach in await survey(sandbox, KERNEL_ATTACKS[:2])] == [
        "mounts_a_file_system",
        "unmounts_what_hides_the_host",
    ]


@pytest.fixture
def bubblewrap():
    return find_bubblewrap(Slots())


@needs_bubblewrap
def test_the_profile_that_is_used_proves_itself(bubblewrap):
    prove(bubblewrap)


@needs_bubblewrap
def test_bubblewrap_started_by_root_itself_is_refused(bubblewrap):
    if not bubblewrap.drop:
        pytest.skip("only root has a user to give up")
    with pytest.raises(ConfigError, match=r"it runs as user .* root's"):
        prove(dataclasses.replace(bubblewrap, drop=()))


@needs_bubblewrap
async def test_without_the_filter_of_system_calls_attacks_on_the_kernel_get_further(bubblewrap, told):
    allow_all = struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)
    sandbox = Sandbox(dataclasses.replace(bubblewrap, filter=allow_all))
    falls = {"opens_a_process_descriptor", "makes_memory_without_a_file", "makes_shared_memory"}
    held_by_other_means = {"makes_a_user_namespace", "mounts_a_file_system", "joins_a_namespace"}
    tried = [attack for attack in KERNEL_ATTACKS if attack.name in falls | held_by_other_means]
    assert {attack.name for attack in tried if await attempt(sandbox, attack, told)} == falls


class Shared(Bubblewrap):
    """A profile with the host's network and files, as one written in haste has it."""

    def command(self, *arguments, **fds):
        words = Bubblewrap.command(self, *arguments, **fds)
        words.insert(words.index("--unshare-all") + 1, "--share-net")
        at = words.index("--dev-bind")
        return [*words[:at], "--ro-bind", "/etc", "/etc", "--ro-bind", "/var", "/var", *words[at:]]


@needs_bubblewrap
def test_one_with_the_hosts_network_and_files_is_refused(bubblewrap):
    shared = Shared(*(getattr(bubblewrap, field.name) for field in dataclasses.fields(bubblewrap)))
    with pytest.raises(ConfigError, match="it is in the host's net namespace"):
        prove(shared)


class Faltering(Bubblewrap):
    """It starts only when asked again, as on a machine under full load."""

    asked = 0

    async def open(self, limits):
        type(self).asked += 1
        if self.asked == 1:
            raise SandboxError("the sandbox did not start")
        return await Bubblewrap.open(self, limits)


@needs_bubblewrap
def test_one_that_does_not_start_at_once_is_asked_again(bubblewrap):
    Faltering.asked = 0
    prove(Faltering(*(getattr(bubblewrap, field.name) for field in dataclasses.fields(bubblewrap))))
    assert Faltering.asked > 2


@needs_bubblewrap
async def test_the_attacks_find_what_the_kernel_does_not_tell(bubblewrap, told):
    shared = Shared(*(getattr(bubblewrap, field.name) for field in dataclasses.fields(bubblewrap)))
    fallen = {
        attack.name for attack in ON_BUBBLEWRAP if attack.works_outside and await attempt(Sandbox(shared), attack, told)
    }
    assert fallen == {"reads_the_hosts_users", "sees_more_than_its_own_directories"}


@needs_gvisor
@pytest.mark.slow
def test_gvisor_proves_itself():
    prove(find_gvisor(Slots()))
