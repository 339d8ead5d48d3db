"""`make gpu-check`: LoomRL's own code on a GPU. Needs this checkout, torch, transformers and xxhash; no Ray, no vLLM.

Every part runs in a process of its own and sends its figures as they come: one that raises, hangs or crashes is
reported as failed with those it had, and the others run, as long as there is time.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

NEEDED = ("torch", "transformers", "numpy", "xxhash")
PARTS = {
    "learner": "loomrl.experiments.gpu.compute:learner",
    "engine_graphs": "loomrl.experiments.gpu.compute:engine_graphs",
    "update": "loomrl.experiments.gpu.update:update",
    "curves": "loomrl.experiments.gpu.update:curves",
    "learner_small": "loomrl.experiments.gpu.compute:learner_small",
    "engine": "loomrl.experiments.gpu.compute:engine",
    "publication": "loomrl.experiments.gpu.publication:publication",
    "chunked_loss": "loomrl.experiments.gpu.compute:chunked_loss",
    "fsdp": "loomrl.experiments.gpu.distributed:fsdp",
    "process_group": "loomrl.experiments.gpu.distributed:process_group",
}
"""Part → its function, which yields figures; the most wanted first. `docs/benchmarks.md` explains each of them."""
MACHINE = "loomrl.experiments.gpu.compute:describe"
LIMIT_S = 180.0
WITHIN_S = 340.0
GOODBYE_S = 10.0


def main(words: Sequence[str] | None = None) -> int:
    """Print the results as one JSON object; 0 if all parts passed, 1 if one failed, 2 if none could run."""
    asked = _arguments(words)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        return _refuse(
            f"{sys.executable} has no {names}. Name a Python that has: make gpu-check PYTHON=/path/to/python3"
        )
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # a look for GPUs here must not keep children from them
    if asked.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    if asked.tiny:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    size = {"cpu": asked.cpu, "tiny": asked.tiny}
    start, machine = _describe(size, asked.limit_s)
    if not machine["ok"]:
        return _refuse(machine["error"])
    if not asked.cpu and machine["gpu"] is None:
        return _refuse(
            f"no GPU: torch {machine['torch']} ({_build(machine)}) sees none. Run this where there is one, with a CUDA "
            "build of torch: make gpu-check PYTHON=/path/to/python3. Without one: make gpu-check ARGS='--cpu --tiny'"
        )
    ends = time.monotonic() + asked.within_s
    parts = {}
    for name in asked.only or PARTS:
        parts[name] = run_part(PARTS[name], size, min(asked.limit_s, ends - time.monotonic()), name=name, start=start)
    failed = [name for name, found in parts.items() if not found["ok"]]
    report = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rehearsal": asked.cpu or asked.tiny,
        "machine": machine,
        "parts": parts,
        "failed": failed,
    }
    print(json.dumps(report, indent=2))
    return 1 if failed else 0


def _describe(size: dict[str, bool], limit_s: float) -> tuple[str, dict[str, Any]]:
    """How processes are started, and the machine. Forked ones need not import torch again, which takes 8 s where GPUs
    are; they see none if CUDA has begun here.
    """
    for start in ("fork", "spawn"):
        if start == "fork":
            import_module(MACHINE.partition(":")[0])
        machine = run_part(MACHINE, size, limit_s, start=start)
        if size["cpu"] or machine.get("gpu") is not None:
            break
    return start, machine


def run_part(
    entry_point: str, size: dict[str, bool], limit_s: float, *, name: str = "", start: str = "spawn"
) -> dict[str, Any]:
    """A part's figures, with `ok`, `seconds`, and an `error` if it failed; printed as they come if it has a name."""
    if limit_s <= 0:
        error = "not begun: the time was up. Name it with --only, or raise --within-s"
        return _print(name, {"ok": False, "error": error})
    context: Any = multiprocessing.get_context(start)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, entry_point, size))
    begun = time.perf_counter()
    process.start()
    theirs.close()
    try:
        found: dict[str, Any] = {}
        while "ok" not in found:
            found |= _print(name, _answer(ours, process, begun + limit_s))
        process.join(GOODBYE_S)
    finally:
        process.kill()
        process.join()
        ours.close()
    return found | _print(name, {"seconds": round(time.perf_counter() - begun, 2)})


def _answer(ours: Connection, process: Any, ends: float) -> dict[str, Any]:
    """The next figures; the last have `ok`."""
    if not ours.poll(max(0.0, ends - time.perf_counter())):
        process.kill()
        return {"ok": False, "error": "its time was up: see what it wrote above, or raise --limit-s or --within-s"}
    try:
        found: dict[str, Any] = ours.recv()
    except EOFError:
        process.join()
        return {"ok": False, "error": f"its process ended with exit code {process.exitcode} before its figures"}
    return found


def _work(theirs: Connection, entry_point: str, size: dict[str, bool]) -> None:
    """In the child: run the part and send its figures, and its error."""
    module, _, name = entry_point.partition(":")
    try:
        for figures in getattr(import_module(module), name)(**size):
            theirs.send(figures)
        theirs.send({"ok": True})
    except Exception as error:  # noqa: BLE001 - the boundary
        traceback.print_exc()
        theirs.send({"ok": False, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"})


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu-check", description="What a GPU does with our own code.")
    parser.add_argument("--cpu", action="store_true", help="rehearse without a GPU: gloo, shared memory, float32")
    parser.add_argument("--tiny", action="store_true", help="a tiny model: whether it works, not how fast")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="these parts alone")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="seconds that a part may take")
    parser.add_argument("--within-s", type=float, default=WITHIN_S, help="seconds that all may take together")
    return parser.parse_args(words)


def _print(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """The figures unchanged, printed on stderr at once, so that an interrupted run still shows them."""
    if name:
        print(f"gpu-check: {name}: {json.dumps(found)}", file=sys.stderr, flush=True)
    return found


def _build(machine: dict[str, Any]) -> str:
    return f"built for CUDA {machine['cuda']}" if machine["cuda"] else "a build without CUDA"


def _refuse(cause: str) -> int:
    print(f"gpu-check: {cause}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
