"""`make gpu-check`: LoomRL's own code on a GPU. Needs this checkout, torch and transformers; no Ray, no vLLM.

Every part runs in a process of its own: one that raises, hangs or crashes is reported as failed, and the others run.
This file imports nothing heavy, because the children import it again.
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

NEEDED = ("torch", "transformers", "numpy")
PARTS = {
    "learner": "loomrl.experiments.gpu.compute:learner",
    "learner_small": "loomrl.experiments.gpu.compute:learner_small",
    "engine": "loomrl.experiments.gpu.compute:engine",
    "engine_graphs": "loomrl.experiments.gpu.compute:engine_graphs",
    "chunked_loss": "loomrl.experiments.gpu.compute:chunked_loss",
    "process_group": "loomrl.experiments.gpu.distributed:process_group",
    "fsdp": "loomrl.experiments.gpu.distributed:fsdp",
    "publication": "loomrl.experiments.gpu.publication:publication",
}
"""Part → its function; `docs/benchmarks.md` explains each of them."""
MACHINE = "loomrl.experiments.gpu.compute:describe"
LIMIT_S = 150.0
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
    if asked.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    size = {"cpu": asked.cpu, "tiny": asked.tiny}
    machine = run_part(MACHINE, size, asked.limit_s)
    if not machine["ok"]:
        return _refuse(machine["error"])
    if not asked.cpu and machine["gpu"] is None:
        return _refuse(
            f"no GPU: torch {machine['torch']} ({_build(machine)}) sees none. Run this where there is one, with a CUDA "
            "build of torch: make gpu-check PYTHON=/path/to/python3. Without one: make gpu-check ARGS='--cpu --tiny'"
        )
    parts = {name: _print_result(name, run_part(PARTS[name], size, asked.limit_s)) for name in asked.only or PARTS}
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


def run_part(entry_point: str, size: dict[str, bool], limit_s: float, *, start: str | None = None) -> dict[str, Any]:
    """A part's results, with `ok` and `seconds`; or its `error`.

    Without a GPU its process is forked, so that torch is imported once. CUDA does not survive a fork: there it is
    spawned.
    """
    if size["cpu"] and start is None:
        import_module("loomrl.experiments.gpu.compute")
    context: Any = multiprocessing.get_context(start or ("fork" if size["cpu"] else "spawn"))
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, entry_point, size))
    begun = time.perf_counter()
    process.start()
    theirs.close()
    try:
        found = _answer(ours, process, limit_s)
        process.join(GOODBYE_S)
    finally:
        process.kill()
        process.join()
        ours.close()
    return {**found, "seconds": round(time.perf_counter() - begun, 2)}


def _answer(ours: Connection, process: Any, limit_s: float) -> dict[str, Any]:
    if not ours.poll(limit_s):
        process.kill()
        return {"ok": False, "error": f"no result after {limit_s:g} s: see what it wrote above, or raise --limit-s"}
    try:
        found: dict[str, Any] = ours.recv()
    except EOFError:
        process.join()
        return {"ok": False, "error": f"its process ended with exit code {process.exitcode} and no result"}
    return found


def _work(theirs: Connection, entry_point: str, size: dict[str, bool]) -> None:
    """In the child: run the part and send its figures or its error."""
    module, _, name = entry_point.partition(":")
    try:
        found = getattr(import_module(module), name)(**size)
        theirs.send({"ok": True, **found})
    except Exception as error:  # noqa: BLE001 - the boundary
        traceback.print_exc()
        theirs.send({"ok": False, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"})


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu-check", description="What a GPU does with our own code.")
    parser.add_argument("--cpu", action="store_true", help="rehearse without a GPU: gloo, shared memory, float32")
    parser.add_argument("--tiny", action="store_true", help="a tiny model: whether it works, not how fast")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="these parts alone")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="seconds that a part may take")
    return parser.parse_args(words)


def _print_result(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """The results unchanged, printed on stderr at once, so that an interrupted run still shows them."""
    print(f"gpu-check: {name}: {json.dumps(found)}", file=sys.stderr, flush=True)
    return found


def _build(machine: dict[str, Any]) -> str:
    return f"built for CUDA {machine['cuda']}" if machine["cuda"] else "a build without CUDA"


def _refuse(cause: str) -> int:
    print(f"gpu-check: {cause}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
