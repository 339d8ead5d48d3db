"""A NATS server for one machine, by `cluster/nats.conf`: its command, and the accounts that it knows."""

import json
import os
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from loomrl.errors import ClusterError
from loomrl.files import make_private

CONFIGURATION = Path(__file__).with_name("nats.conf")
ACCOUNTS = ("agent", "coordinator", "trainer")
PROGRAM = "nats-server"
OFF_THE_PATH = "/usr/sbin:/usr/local/sbin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A server to start: its command, what it needs in its environment, and a URL for each account."""

    command: tuple[str, ...]
    environment: dict[str, str]
    urls: dict[str, str]


def broker(folder: Path, *, host: str = "127.0.0.1", port: int = 4222) -> Broker:
    """The server whose streams and passwords are in a folder; a ClusterError if it cannot start."""
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=OFF_THE_PATH)
    if program is None:
        raise ClusterError(
            f"{PROGRAM} is not installed. Install it: apt-get install nats-server. Or leave --bus out: "
            "then the bus is in LoomDB."
        )
    _refuse_taken(host, port)
    make_private(folder)
    passwords = _passwords(folder / "passwords.json")
    return Broker(
        command=(program, "-c", str(CONFIGURATION), "-a", host, "-p", str(port), "-sd", str(folder.absolute())),
        environment={f"NATS_{name.upper()}_PASSWORD": word for name, word in passwords.items()},
        urls={name: f"nats://{name}:{word}@{host}:{port}" for name, word in passwords.items()},
    )


def _refuse_taken(host: str, port: int) -> None:
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise ClusterError(
            f"{host}:{port} cannot be used: {error}. Choose another --port, or end what has it."
        ) from None


def _passwords(file: Path) -> dict[str, str]:
    """The accounts' passwords, made at the first start; only this user may read them."""
    if not file.exists():
        made = {name: f"p{secrets.token_hex(16)}" for name in ACCOUNTS}  # a letter first: numbers are read as numbers
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as text:
            json.dump(made, text)
    passwords: dict[str, str] = json.loads(file.read_text())
    return passwords
