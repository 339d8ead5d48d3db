"""`python -m tests.lab …`: hosts on this machine to rehearse on, whose links and power can fail."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from loomrl.errors import LoomError
from tests.lab.lab import Lab
from tests.lab.machine import HOME, check_machine, is_seen, remove

app = typer.Typer(help="Rehearse a cluster on this machine: hosts whose links and power can fail. Needs root.",
                  no_args_is_help=True)  # fmt: skip

Name = Annotated[str, typer.Option("--lab", help="The lab's name.")]
HostName = Annotated[str, typer.Argument(metavar="HOST")]


@app.command()
def up(
    hosts: Annotated[list[str], typer.Argument(metavar="HOST...", help="Names of the hosts, such as head one two.")],
    lab: Name = "lab",
    network: Annotated[str, typer.Option(help="A private network; hosts get its first addresses.")] = "10.77.0.0/24",
    disk_mb: Annotated[int, typer.Option(help="Of every host, in memory: /tmp, and in it the home.")] = 2048,
    uplink: Annotated[
        bool, typer.Option("--uplink", help="This machine is in the network too: its last address.")
    ] = False,
) -> None:
    """Start hosts with addresses, disks, processes and sshd of their own. They stay until `down`."""
    _print_lab(Lab.up(lab, hosts, network=network, disk_mb=disk_mb, uplink=uplink))


@app.command()
def down(lab: Name = "lab") -> None:
    """End every process of a lab and remove it, also if the command that started it was killed."""
    check_machine()
    remove(lab)


@app.command()
def show(
    lab: Name = "lab",
) -> None:
    """List a lab's hosts, their links and cuts."""
    _print_lab(Lab.open(lab))


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    host: HostName,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...")],
    lab: Name = "lab",
) -> None:
    """Run a command on a host, in the current folder if the host sees it; the exit status is the command's."""
    cwd = str(Path.cwd()) if is_seen(Path.cwd()) else HOME
    done = subprocess.run(Lab.open(lab).command(host, command, cwd=cwd), check=False)
    raise typer.Exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


@app.command()
def link(
    host: HostName,
    lab: Name = "lab",
    up: Annotated[bool | None, typer.Option("--up/--down", help="Plug its cable in, or pull it.")] = None,
    mbit: Annotated[float | None, typer.Option(help="Mbit/s in each direction; 0 is no limit.")] = None,
    rtt_ms: Annotated[float | None, typer.Option(help="Added to a round trip, half of it each way.")] = None,
    loss: Annotated[float | None, typer.Option(help="Share of packets lost in each direction; 2 % is 0.02.")] = None,
) -> None:
    """Change a host's link; what is not named stays as it is."""
    given = {"up": up, "mbit": mbit, "rtt_ms": rtt_ms, "loss": loss}
    changes = {name: value for name, value in given.items() if value is not None}
    Lab.open(lab).link(host, **(changes | ({"mbit": None} if mbit == 0 else {})))


def of_two(name: str, about: str) -> None:
    """A command for two hosts that is a method of the lab."""

    @app.command(name, help=about)
    def command(source: HostName, target: HostName, lab: Name = "lab") -> None:
        getattr(Lab.open(lab), name)(source, target)


def of_one(name: str, method: str, about: str) -> None:
    """A command for a host that is a method of the lab."""

    @app.command(name, help=about)
    def command(host: HostName, lab: Name = "lab") -> None:
        getattr(Lab.open(lab), method)(host)


of_two("cut", "Packets of the first host no longer arrive at the second; the other way they do.")
of_two("heal", "End a cut.")
of_one("off", "power_off", "Cut a host's power: SIGKILL for all that runs there. Its disk stays.")
of_one("on", "power_on", "Start a host that is off.")
of_one("fill", "fill", "Write a host's disk full.")
of_one("free", "free", "Remove what `fill` wrote.")


@app.command()
def clock(
    host: HostName,
    ahead_s: Annotated[float, typer.Option("--ahead-s", help="Seconds; negative is behind.")],
    lab: Name = "lab",
) -> None:
    """Set a host's clock ahead or behind, for what starts there from now on."""
    Lab.open(lab).clock(host, ahead_s)


def _print_lab(lab: Lab) -> None:
    """Print a lab as one JSON object."""
    plan = lab.plan
    hosts = {
        host.name: {
            "address": host.address,
            "on": lab.is_on(host.name),
            **{key: getattr(host.link, key) for key in ("up", "mbit", "rtt_ms", "loss")},
            "deaf_to": host.deaf_to,
        }
        for host in plan.hosts.values()
    }
    print(json.dumps({"lab": plan.name, "network": plan.network, "shared": str(lab.shared), "hosts": hosts}))


def main() -> None:
    """Run a command. An error is one message on stderr and exit status 2."""
    try:
        app(prog_name="python -m tests.lab")
    except (LoomError, OSError) as error:
        sys.exit(f"lab: {error}")


if __name__ == "__main__":
    main()
