"""The machine and libraries that the last bits of a result depend on."""

import platform
from pathlib import Path

import torch


def arithmetic() -> dict[str, str]:
    """Versions, processor, kernels and threads: where all are equal, equal work gives equal bits."""
    return {
        "torch": torch.__version__,
        "processor": _processor(),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
