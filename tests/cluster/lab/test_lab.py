"""A lab starts, fails as asked, and ends without a trace, whatever becomes of the tool."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from loomrl.errors import ClusterError
from tests.cluster.lab.lab_support import a_lab, a_name, hears, ping, python
from tests.lab import Lab
from tests.lab.machine import ROOT as LABS
from tests.lab.machine import remove
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), pytest.mark.timeout(180)]
CLOCKS = """
import threading, time
wall, runs = time.time(), time.monotonic()
time.sleep(0.2); threading.Event().wait(0.2); lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=0.2)
print(wall, time.time() - wall, time.monotonic() - runs)
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    with a_lab("head", "one", "two") as lab:
        yield lab


# -- hosts -------------------------------------------------------------------------------------------------------------


def test_hosts_have_names_addresses_disks_and_processes_of_their_own(lab: Lab) -> None:
    said = lab.run("one", ["sh", "-c", "hostname; cat /etc/hostname; hostname -I; ls /tmp; pwd; ls /dev/shm"]).stdout
    assert said.split() == ["one", "one", lab.plan.host("one").address, "home", "shared", "/tmp/home"]
    lab.run("one", ["sh", "-c", "echo of one > /tmp/mine; echo of all > /tmp/shared/ours; sleep 77 > /dev/null 2>&1 &"])
    assert lab.run("two", ["sh", "-c", "ls /tmp; cat /tmp/shared/ours"]).stdout == "home\nshared\nof all\n"
    assert (lab.shared / "ours").read_text() == "of all\n"
    assert "sleep 77" in lab.run("one", ["ps", "ax"]).stdout
    assert "sleep 77" not in lab.run("two", ["ps", "ax"]).stdout


def test_hosts_reach_each_other_by_name_and_by_ssh_and_nobody_else(lab: Lab) -> None:
    assert lab.run("head", ["ssh", "-o", "BatchMode=yes", "two", "hostname; pwd"]).stdout.split() == [
        "two",
        "/tmp/home",
    ]
    assert lab.run("head", ["ssh", "two", "bash -lc 'command -v python'"]).stdout.strip() == sys.executable
    assert lab.run("two", ["ip", "-br", "link"]).stdout.count("\n") == 2  # lo and eth0
    outside = subprocess.run(["ping", "-c1", "-W1", lab.plan.host("two").address], capture_output=True)
    assert outside.returncode != 0


def test_commands_see_nothing_of_the_callers_variables_and_end_with_their_status(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the caller")
    assert "SECRET" not in lab.run("one", ["env"], env={"MORE": "1"}).stdout
    assert lab.run("one", ["sh", "-c", "exit 7"], check=False).returncode == 7
    with pytest.raises(ClusterError, match="ended with 7: oh"):
        lab.run("one", ["sh", "-c", "echo oh; exit 7"])
    with pytest.raises(ClusterError, match=r"has not ended within 0\.3 s"):
        lab.run("one", ["sleep", "78"], timeout_s=0.3)
    assert "sleep 78" not in lab.run("one", ["ps", "ax"]).stdout


# -- links -------------------------------------------------------------------------------------------------------------


def test_a_link_is_as_slow_and_lossy_as_asked_and_as_before_when_it_is_taken_back(lab: Lab) -> None:
    lab.link("one", rtt_ms=200)
    lost, ms = ping(lab, "head", "one", count=20)
    assert lost == 0
    assert 199 < ms[0] < 250, "more is the machine's own, if it is busy"
    lab.link("one", rtt_ms=0, loss=0.02)
    lost, _ = ping(lab, "head", "one", count=2000, every_s=0.001)
    assert 0.02 < lost < 0.06, "4 % of round trips: 2 % each way"
    lab.link("one", loss=0)
    assert ping(lab, "head", "one", count=100)[0] == 0
    assert ping(lab, "head", "one")[1][0] < 20


def test_bandwidth_is_what_was_asked_in_both_directions(lab: Lab) -> None:
    lab.link("one", mbit=20)
    assert 14 < megabits(lab, "head", "one") < 21
    assert 14 < megabits(lab, "one", "head") < 21
    lab.link("one", mbit=None)
    assert megabits(lab, "head", "one") > 40


def test_a_cut_is_one_way_and_between_two_hosts(lab: Lab) -> None:
    lab.cut("one", "two")
    assert (hears(lab, "one", "two"), hears(lab, "two", "one"), hears(lab, "head", "two")) == (False, True, True)
    lab.heal("one", "two")
    assert hears(lab, "one", "two")


# -- power, disk, clock ------------------------------------------------------------------------------------------------


def test_without_power_everything_on_a_host_is_dead_and_with_it_disk_link_and_cuts_are_as_before(lab: Lab) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    lab.link("two", rtt_ms=50)
    lab.cut("one", "two")
    running = lab.start("two", ["sleep", "60"])
    lab.run("two", ["sh", "-c", "echo kept > ~/file"])
    lab.power_off("two")
    assert running.wait(timeout=5) != 0
    assert ping(lab, "head", "two", count=2)[0] == 1
    with pytest.raises(ClusterError, match="two is off"):
        lab.run("two", ["true"])
    lab.power_off("two")  # it is
    lab.power_on("two")
    assert lab.run("two", ["sh", "-c", "cat ~/file"]).stdout == "kept\n"
    assert 49 < ping(lab, "head", "two", count=20, every_s=0.1)[1][0] < 100
    assert not hears(lab, "one", "two")
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_full_disk_is_full_for_its_host_alone(lab: Lab) -> None:
    lab.fill("two")
    full = lab.run("two", ["sh", "-c", "echo more > ~/more"], check=False)
    assert full.returncode != 0
    lab.run("one", ["sh", "-c", "echo more > ~/more"])
    lab.free("two")
    lab.run("two", ["sh", "-c", "echo more > ~/more"])


@pytest.mark.parametrize("ahead_s", [3600.0, -30.5])
def test_a_clock_that_is_set_is_ahead_or_behind_and_waits_take_as_long_as_ever(lab: Lab, ahead_s: float) -> None:
    lab.clock("two", ahead_s)
    now = time.time()
    wall, took, ran = map(float, lab.run("two", python(CLOCKS)).stdout.split())
    assert 0 <= wall - ahead_s - now < 20
    assert (took, ran) == (pytest.approx(ran, abs=0.01), pytest.approx(0.6, abs=1))
    over_ssh = float(lab.run("one", ["ssh", "two", "date +%s.%N"]).stdout)
    assert over_ssh - ahead_s - now < 20


# -- start and end -----------------------------------------------------------------------------------------------------


def test_a_lab_of_a_name_that_is_taken_is_refused_and_left_alone(lab: Lab) -> None:
    with pytest.raises(ClusterError, match=f"{lab.plan.name}.*is there already"):
        Lab.up(lab.plan.name, ["a"])
    assert ping(lab, "head", "one")[0] == 0


def cli(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`python -m tests.lab …`."""
    command = [sys.executable, "-m", "tests.lab", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


def test_another_process_finds_the_lab_changes_it_and_removes_it_without_a_trace(tmp_path: Path) -> None:
    name, before = a_name(), traces()
    words = ("--lab", name)
    up = cli("up", "a", "b", *words, "--disk-mb", "64", cwd=tmp_path)
    assert json.loads(up.stdout)["hosts"]["b"]["address"] == "10.77.0.2", up.stderr
    lab = Lab.open(name)
    spaces = namespaces(lab)
    assert cli("run", *words, "a", "--", "sh", "-c", "hostname; exit 3", cwd=tmp_path).returncode == 3
    for command in (("link", "a", "--rtt-ms", "100"), ("cut", "a", "b"), ("off", "b"), ("on", "b"), ("heal", "a", "b")):
        done = cli(command[0], *words, *command[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert ping(lab, "a", "b")[1][0] > 99
    assert cli("down", *words, cwd=tmp_path).returncode == 0
    assert (traces(), in_namespaces(spaces)) == (before, [])
    assert "is not there" in cli("down", *words, cwd=tmp_path).stderr


@pytest.mark.parametrize("after_s", [0.3, 0.6, 0.8, 1.3])
def test_whatever_a_killed_tool_left_is_removed(after_s: float) -> None:
    name, before = a_name(), traces()
    script = f"from tests.lab import Lab; Lab.up({name!r}, list('abc'), disk_mb=64)"
    tool = subprocess.Popen([sys.executable, "-c", script])
    with suppress(subprocess.TimeoutExpired):
        tool.wait(timeout=after_s)
    tool.send_signal(signal.SIGKILL)
    tool.wait()
    spaces = set() if not (LABS / name / "switch.stat").exists() else namespaces(Lab.open(name))
    if (LABS / name).exists():
        remove(name)
    assert (traces(), in_namespaces(spaces)) == (before, [])
    with a_lab("a"):
        pass


def test_an_uplink_is_there_while_the_lab_is_and_its_network_is_this_machines_for_as_long() -> None:
    with Lab.up(a_name(), ["a"], network="10.78.0.0/24", disk_mb=64, uplink=True) as lab:
        assert subprocess.run(["ping", "-c1", "-W2", "10.78.0.1"], capture_output=True).returncode == 0
        with pytest.raises(ClusterError, match=r"overlaps 10\.78\.0\."):
            Lab.up(f"second-{a_name()}", ["a"], network="10.78.0.0/16", uplink=True)
    assert not Path("/sys/class/net", lab.plan.uplink_name).exists()


def megabits(lab: Lab, source: str, target: str) -> float:
    """What a connection carries in two seconds."""
    take = "import socket; l = socket.create_server(('', 7003)); print('up', flush=True); c, _ = l.accept()\n"
    send = (
        "import socket, sys, time; c = socket.create_connection((sys.argv[1], 7003)); began, sent = time.time(), 0\n"
        "while time.time() < began + 2: sent += c.send(bytes(65536))\n"
        "c.shutdown(1); c.recv(1); print(sent * 8e-6 / (time.time() - began))"
    )
    with lab.start(target, python(f"{take}while c.recv(65536): pass\nc.send(b'x')"), stdout=-1) as taker:
        taker.stdout.readline()
        return float(lab.run(source, python(send, target)).stdout)


def traces() -> dict[str, object]:
    """What this machine shows of labs, but of that of this file's other tests."""
    links = {line.split()[0] for line in subprocess.check_output(["ip", "-br", "link"], text=True).splitlines()}
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if "loomrl-lab" in line or "lab-" in line]
    spaces = subprocess.check_output(["ip", "netns"], text=True)
    labs = sorted(path.name for path in LABS.iterdir()) if LABS.exists() else []
    return {"links": links, "mounts": mounts, "netns": spaces, "labs": labs}


def namespaces(lab: Lab) -> set[str]:
    """Those of processes and networks that a lab has."""
    found = set()
    for file in lab.folder.glob("*.stat"):
        pid = file.read_text().split()[0]
        with suppress(OSError):
            found |= {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("pid", "net")}
    return found


def in_namespaces(spaces: set[str]) -> list[str]:
    """Processes that are still in one of them, after a moment for who is about to end."""
    until = time.monotonic() + 5
    while (found := list(_in_namespaces(spaces))) and time.monotonic() < until:
        time.sleep(0.01)
    return found


def _in_namespaces(spaces: set[str]) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if {str((process / "ns" / kind).readlink()) for kind in ("pid", "net")} & spaces:
                yield (process / "cmdline").read_text()
