"""The choice of a sandbox, and the message where there is none."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import loomrl.gym.sandbox as package
from loomrl.errors import ConfigError, SandboxError
from loomrl.gym.sandbox import Ending, Limits, Slots, open_sandbox
from loomrl.gym.sandbox.contract import find_interpreter
from loomrl.gym.sandbox.gvisor import Gvisor, find_gvisor
from loomrl.gym.sandbox.session import Sandbox
from tests.needs import needs

needs_gvisor = needs("gVisor")


@pytest.fixture(autouse=True)
def fresh_proofs() -> None:
    package._open_boxes.cache_clear()


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'bubblewarp' is unknown.*Did you mean 'bubblewrap'"):
        open_sandbox("bubblewarp")


@pytest.mark.parametrize("kind", ["auto", "bubblewrap", "gvisor"])
def test_without_a_sandbox_nothing_runs_and_the_message_says_what_to_install(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"apt-get install (bubblewrap|runsc)"):
        open_sandbox(kind)


@pytest.fixture
def programs() -> Iterator[Path]:
    """A folder that every user can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def fake(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_bubblewrap_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(tmp_path, "bwrap", "echo bubblewrap 0.6.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"bubblewrap 0.6.1, which is too old.*0\.8\.0"):
        open_sandbox("bubblewrap")


def test_one_that_may_make_no_namespaces_is_refused_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch, programs: Path
) -> None:
    fake(programs, "bwrap", '[ "$1" = --version ] && echo bubblewrap 0.9.0 && exit\necho no permission >&2; exit 1')
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(ConfigError, match=r"no safe sandbox here: bubblewrap did not start. It said: no permission"):
        open_sandbox("bubblewrap")


def test_the_sandbox_is_light_until_it_is_opened() -> None:
    code = "import sys, loomrl.gym.sandbox; print([name for name in sys.modules if 'sandbox' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "bubblewrap" not in done.stdout
    assert "gvisor" not in done.stdout


def test_the_interpreter_comes_with_what_it_needs_and_no_packages() -> None:
    found = find_interpreter(for_others=True)
    assert found.executable.exists()
    assert any(file.name.startswith("libc.") for file in found.libraries)
    assert all((folder / "os.py").exists() for folder in found.standard)
    assert not any("site-packages" in file.parts for file in found.files)


def test_gvisors_bundle_says_what_it_should(tmp_path: Path) -> None:
    gvisor = Gvisor("/usr/bin/runsc", find_interpreter(for_others=False), Slots())
    gvisor.write_bundle(tmp_path, Limits(scratch_mb=5))
    said = json.loads((tmp_path / "config.json").read_text())
    assert said["process"]["noNewPrivileges"]
    assert set(said["process"]["capabilities"]["bounding"]) == {"CAP_KILL", "CAP_SETGID", "CAP_SETUID"}
    assert said["root"] == {"path": "rootfs", "readonly": True}
    assert all("ro" in mount["options"] for mount in said["mounts"] if mount["destination"] != "/tmp")
    assert f"size={5 << 20}" in next(mount["options"] for mount in said["mounts"] if mount["destination"] == "/tmp")
    assert all(
        (tmp_path / "rootfs" / mount["destination"][1:]).exists() for mount in said["mounts"] if mount["type"] == "bind"
    )
    command = gvisor.command(tmp_path)
    assert command[command.index("--network") + 1] == "none"


@needs_gvisor
@pytest.mark.system
async def test_gvisor_runs_programs_one_at_a_time_and_warm() -> None:
    sandbox = Sandbox(find_gvisor(Slots()))
    execution = await sandbox.run("print(input()); import sys; sys.exit(4)", stdin=b"hi")
    assert (execution.ending, execution.status, execution.output) == (Ending.EXITED, 4, b"hi\n")
    async with sandbox.session(preload="import math", limits=Limits(wall_s=0.7)) as session:
        assert (await session.run("while True: pass")).ending is Ending.TIMEOUT
        assert (await session.run("import os; os.kill(os.getppid(), 9)")).status == 1
        assert (await session.run("print(2)")).output == b"2\n"


@needs_gvisor
@pytest.mark.system
async def test_gvisor_leaves_no_process_and_no_file() -> None:
    boxes = find_gvisor(Slots())
    box = await boxes.open(Limits())
    assert box.bundle.exists()
    await box.end()
    assert not box.bundle.exists()
    assert box.process.poll() is not None


@needs_gvisor
@pytest.mark.system
async def test_a_broken_runsc_is_trouble_and_no_outcome() -> None:
    with pytest.raises(SandboxError):
        await Sandbox(Gvisor("/bin/false", find_interpreter(for_others=False), Slots())).run("print(1)")
