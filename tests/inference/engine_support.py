"""The processes of vLLM's engines, for tests that kill them."""

import os

import psutil
import ray

from loomrl.inference.vllm.fleet import VllmFleet


def processes(engines: VllmFleet) -> list[tuple[psutil.Process, psutil.Process]]:
    """Of every engine: its actor, and vLLM's core below it."""
    pids = ray.get([actor.__ray_call__.remote(lambda self: os.getpid()) for actor in engines._actors])
    actors = map(psutil.Process, pids)
    return [(actor, core_below(actor)) for actor in actors]


def core_below(actor: psutil.Process) -> psutil.Process:
    """vLLM's core. Its own title is not to be relied on: in some runs it has none."""
    return next(child for child in actor.children() if "resource_tracker" not in " ".join(child.cmdline()))
