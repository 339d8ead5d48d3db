"""Keys of a lab, made for it and thrown away with it, and the settings of its sshd."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

SERVER = """\
Port 22
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv {environment}
"""


def make_keys(folder: Path, names: Iterable[str], environment: Mapping[str, str]) -> None:
    """One key that opens every host, one by which every host is known, and the settings of sshd."""
    folder.mkdir()
    for file in ("id_ed25519", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(folder / file)], check=True
        )
    known = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"{','.join(names)} {known}")
    (folder / "authorized_keys").write_text((folder / "id_ed25519.pub").read_text())
    words = " ".join(f'"{name}={value}"' for name, value in environment.items())
    (folder / "sshd_config").write_text(SERVER.format(folder=folder, environment=words))
