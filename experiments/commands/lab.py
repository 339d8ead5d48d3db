"""`loomrl lab …`: hosts on this machine to rehearse on, whose links and power can fail. It needs root."""

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loomrl.experiments.commands.output import AsJson, beginning, emit, table

if TYPE_CHECKING:
    from loomrl.cluster.lab import Lab

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
    as_json: AsJson = False,
) -> None:
    """Start hosts with addresses, disks, processes and sshd of their own. They stay until `loomrl lab down`."""
    from loomrl.cluster.lab import Lab

    beginning(f"lab {lab} of {len(hosts)} hosts")
    _show(Lab.up(lab, hosts, network=network, disk_mb=disk_mb, uplink=uplink), as_json=as_json)


@app.command()
def down(lab: Name = "lab") -> None:
    """End every process of a lab and remove it, also if the command that started it was killed."""
    from loomrl.cluster.lab.machine import check_machine, remove

    check_machine()
    remove(lab)


@app.command()
def show(lab: Name = "lab", as_json: AsJson = False) -> None:
    """List a lab's hosts, their links and cuts."""
    from loomrl.cluster.lab import Lab

    _show(Lab.open(lab), as_json=as_json)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    host: HostName,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...")],
    lab: Name = "lab",
) -> None:
    """Run a command on a host, in the current folder if the host sees it; the exit status is the command's."""
    from loomrl.cluster.lab import Lab
    from loomrl.cluster.lab.machine import HOME, is_seen

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
    from loomrl.cluster.lab import Lab

    given = {"up": up, "mbit": mbit, "rtt_ms": rtt_ms, "loss": loss}
    changes = {name: value for name, value in given.items() if value is not None}
    Lab.open(lab).link(host, **(changes | ({"mbit": None} if mbit == 0 else {})))


@app.command()
def cut(source: HostName, target: HostName, lab: Name = "lab") -> None:
    """Packets of the first host no longer arrive at the second; the other way they do."""
    from loomrl.cluster.lab import Lab

    Lab.open(lab).cut(source, target)


@app.command()
def heal(source: HostName, target: HostName, lab: Name = "lab") -> None:
    """End a cut."""
    from loomrl.cluster.lab import Lab

    Lab.open(lab).heal(source, target)


@app.command()
def off(host: HostName, lab: Name = "lab") -> None:
    """Cut a host's power: SIGKILL for all that runs there. Its disk stays."""
    from loomrl.cluster.lab import Lab

    Lab.open(lab).power_off(host)


@app.command()
def on(host: HostName, lab: Name = "lab") -> None:
    """Start a host that is off."""
    from loomrl.cluster.lab import Lab

    Lab.open(lab).power_on(host)


@app.command()
def fill(host: HostName, lab: Name = "lab") -> None:
    """Write a host's disk full."""
    from loomrl.cluster.lab import Lab

    Lab.open(lab).fill(host)


@app.command()
def free(host: HostName, lab: Name = "lab") -> None:
    """Remove what `fill` wrote."""
    from loomrl.cluster.lab import Lab

    Lab.open(lab).free(host)


@app.command()
def clock(
    host: HostName,
    ahead_s: Annotated[float, typer.Option("--ahead-s", help="Seconds; negative is behind.")],
    lab: Name = "lab",
) -> None:
    """Set a host's clock ahead or behind, for what starts there from now on."""
    from loomrl.cluster.lab import Lab

    Lab.open(lab).clock(host, ahead_s)


def _show(lab: "Lab", *, as_json: bool) -> None:
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
    columns = ("host", "address", "on", "link up", "Mbit/s>", "RTT ms>", "loss>", "deaf to")
    rows = [(name, *map(_plain, host.values())) for name, host in hosts.items()]
    emit(
        {"lab": plan.name, "network": plan.network, "shared": str(lab.shared), "hosts": hosts},
        as_json=as_json,
        show=lambda console: console.print(table(f"lab {plan.name}", columns, rows)),
    )


def _plain(value: object) -> object:
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return " ".join(value)
        case None:
            return "–"
    return value
