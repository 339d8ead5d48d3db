"""The plan of a lab, and what is refused before anything is touched."""

import os
import shutil
from pathlib import Path

import pytest

from loomrl.errors import ClusterError
from tests.lab import Lab, Link
from tests.lab import machine as lab_machine
from tests.lab.machine import check_machine, is_seen, refuse_taken
from tests.lab.plan import Host, Plan
from tests.lab.relay import Way


def plan(*hosts: str, network: str = "10.77.0.0/24", name: str = "lab", uplink: bool = False) -> Plan:
    return Plan.of(name, hosts or ("head", "one"), network=network, disk_mb=64, uplink=uplink)


def test_hosts_get_addresses_in_their_order_and_a_plan_is_read_as_it_was_written() -> None:
    made = plan("head", "one", "two", network="10.1.2.0/29", uplink=True)
    assert [host.address for host in made.hosts.values()] == ["10.1.2.1", "10.1.2.2", "10.1.2.3"]
    assert made.our_address == "10.1.2.6"
    assert "10.1.2.3 two\n10.1.2.6 outside\n" in made.hosts_file()
    made.hosts["one"].link = Link(up=False, mbit=20, rtt_ms=200, loss=0.02)
    made.hosts["one"].deaf_to.append("two")
    assert Plan.from_json(made.as_json()) == made


def test_interfaces_have_addresses_of_their_own_and_names_that_fit() -> None:
    assert len({Host(name="a", number=number, address="").mac for number in range(1, 600)}) == 599
    assert len(plan(name="a-name-that-is-rather-long").uplink_name) <= 15


@pytest.mark.parametrize(
    ("hosts", "network", "says"),
    [
        (("Head",), "10.77.0.0/24", "'Head': small letters"),
        (("../x",), "10.77.0.0/24", "'../x': small letters"),
        (("a", "b", "a"), "10.77.0.0/24", "Twice: a"),
        (("a",), "10.77.0.0/33", "Such as 10.77.0.0/24"),
        (("a",), "10.77.0.1/24", "has host bits set"),
        (("a",), "8.8.8.0/24", "private IPv4"),
        (("a",), "127.0.0.0/24", "private IPv4"),
        (("a",), "fd00::/64", "private IPv4"),
        (tuple("abcdef"), "10.77.0.0/29", "room for 5 hosts, not 6"),
        (("a",), "10.77.0.0/31", "room for 0 hosts, not 1"),
    ],
)
def test_plans_that_cannot_be_are_refused_by_name(hosts: tuple[str, ...], network: str, says: str) -> None:
    with pytest.raises(ClusterError, match=says.replace("../", r"\.\./")):
        plan(*hosts, network=network)


@pytest.mark.parametrize("wrong", [{"mbit": 0}, {"mbit": -1}, {"rtt_ms": -1}, {"rtt_ms": 1e6}, {"loss": 2}])
def test_links_that_cannot_be_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ClusterError, match=next(iter(wrong))):
        Link(**wrong)


def test_a_host_that_is_not_there_is_named_with_the_others() -> None:
    with pytest.raises(ClusterError, match=r"'hed'.*head"):
        plan().host("hed")


def test_without_root_a_lab_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lab_machine, "ROOT", tmp_path / "labs")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="needs root"):
        Lab.up("lab", ["a"])
    assert not (tmp_path / "labs").exists()


def test_missing_programs_are_named_with_the_packages_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program: None if program in ("ip", "tc", "ssh-keygen") else program)
    with pytest.raises(ClusterError, match=r"apt-get install iproute2 openssh-client$"):
        check_machine()


def test_folders_that_every_host_has_for_itself_are_known() -> None:
    assert not is_seen(Path("/tmp/clone"))
    assert is_seen(Path("/tmpfolder"))


def test_an_uplink_into_a_network_of_this_machine_is_refused() -> None:
    if shutil.which("ip") is None:
        pytest.skip("needs ip: apt-get install iproute2")
    with pytest.raises(ClusterError, match=r"overlaps 127\.0\.0\.0/8, which lo has"):
        refuse_taken(Plan(name="lab", network="127.5.0.0/16", hosts={}, disk_mb=64, uplink=True))


def test_packets_are_relayed_in_order_when_they_are_due_and_lost_as_often_as_asked() -> None:
    source, write = os.pipe2(os.O_NONBLOCK | os.O_DIRECT)
    read, sink = os.pipe2(os.O_NONBLOCK | os.O_DIRECT)
    way = Way(source, sink)
    for number in range(10):
        os.write(write, b"%d" % number)
    way.take(0.05, 0.0)
    way.give()
    with pytest.raises(BlockingIOError):
        os.read(read, 9)
    way.waiting = type(way.waiting)((0.0, packet) for _, packet in way.waiting)
    way.give()
    assert [os.read(read, 9) for _ in range(10)] == [b"%d" % number for number in range(10)]
    for _ in range(10):
        os.write(write, b"x")
    way.take(0.0, 1.0)
    assert not way.waiting
    for handle in (source, write, read, sink):
        os.close(handle)
