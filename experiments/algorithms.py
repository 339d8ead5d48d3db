"""Opens an experiment's algorithm, and Ray with it."""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loomrl.config import AnyExperiment, ControlExperiment, CustomAlgorithm, RewardModel
from loomrl.config.placement import PER_CORE
from loomrl.errors import ConfigError
from loomrl.named import named
from loomrl.own_ray import cluster_address, join_ray, own_ray
from loomrl.process import exit_on_sigterm, none_outlives_us

CONFIGS = {
    "language": "loomrl.algorithms.language.config:LanguageConfig",
    "ppo": "loomrl.algorithms.control.ppo:PPOConfig",
    "sac": "loomrl.algorithms.control.sac:SACConfig",
    "dqn": "loomrl.algorithms.control.dqn:DQNConfig",
    "weave": "loomrl.algorithms.control.weave:WeaveConfig",
    "bc": "loomrl.algorithms.control.bc:BCConfig",
    "iql": "loomrl.algorithms.control.iql:IQLConfig",
}
"""RLlib configurations, by name: importing one loads torch and Ray."""
PLENTY = 10**6
JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it for the process of a job, whose runtime environment its actors share."""
RAYLET_DIED = (
    "loomrl: Ray's raylet, which runs the work on this machine, has died (killed? out of memory?): this command ends.\n"
    "loomrl: resume a training from its last checkpoint with `loomrl train EXPERIMENT --resume`."
)


def open_algorithm(experiment: AnyExperiment, *, run: str | None = None) -> Any:
    """The RLlib configuration of the experiment; `build_algo()` makes the algorithm."""
    if isinstance(experiment.algorithm, CustomAlgorithm):
        return _own(experiment, experiment.algorithm.entry_point).of(experiment, run=run)
    kind = experiment.algorithm.kind if isinstance(experiment, ControlExperiment) else "language"
    return named(CONFIGS[kind], what="algorithm").of(experiment, run=run)


def _own(experiment: AnyExperiment, entry_point: str) -> Any:
    """A user's own configuration class."""
    from loomrl.algorithms.control.config import ControlConfig
    from loomrl.algorithms.language.config import LanguageConfig

    wanted = ControlConfig if isinstance(experiment, ControlExperiment) else LanguageConfig
    found = named(entry_point, what="algorithm.entry_point")
    if not (isinstance(found, type) and issubclass(found, wanted)):
        raise ConfigError(
            f"algorithm.entry_point={entry_point!r}: {getattr(found, '__name__', found)!r} is not a subclass of "
            f"{wanted.__module__}.{wanted.__name__}. Name your configuration class; it names your learner in "
            "get_default_learner_class (docs/custom.md)."
        )
    return found


@contextmanager
def ray_for(experiment: AnyExperiment, *, run: str | None = None) -> Iterator[None]:
    """A running Ray for a training that has more than this process, or is part of a cluster."""
    with ExitStack() as stack:
        if not isinstance(experiment.algorithm, RewardModel):
            config = open_algorithm(experiment, run=run)
            config.validate()
            from loomrl.algorithms.resources import needed_cpus, needs_ray

            if needs_ray(config):
                stack.enter_context(ray_running(1 + needed_cpus(config), experiment.placement.names))
        yield


@contextmanager
def ray_running(cpus: int, resources: Iterable[str] = ()) -> Iterator[None]:
    """A running Ray: the existing one (a job, a cluster in RAY_ADDRESS), else our own for this context.

    Our own has all the custom `resources`, so that this machine is every kind of node. It has at most `PER_CORE` CPUs
    per core: a run that needs more gets an error.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    with ExitStack() as stack:
        if address := cluster_address():
            _join(address, stack)
        else:
            plenty = dict.fromkeys(resources, PLENTY)
            cores = os.cpu_count() or 1
            count = min(max(cpus, cores), PER_CORE * cores)
            stack.enter_context(own_ray(num_cpus=count, resources=plenty))
            stack.enter_context(none_outlives_us(vital="raylet/raylet", obituary=RAYLET_DIED))  # agents would, a minute
        if threading.current_thread() is threading.main_thread():
            exit_on_sigterm()  # in order: Ray's own way takes itself down before what works in it
        yield


def _join(address: str, stack: ExitStack) -> None:
    """Join a cluster. Its nodes get our packages with us, unless a job has brought them already."""
    import ray

    from loomrl.cluster.address import cluster_errors, refuse_silent
    from loomrl.cluster.bundle import packed

    refuse_silent(address)
    brought: dict[str, Any] = {}
    if JOB not in os.environ:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="loomrl-packages-")))
        packed(folder)
        brought = {"runtime_env": {"py_modules": [str(folder / "loomrl")]}}
    with cluster_errors(address):
        join_ray(address, **brought)
    stack.callback(ray.shutdown)
