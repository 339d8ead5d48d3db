"""The beginning of a run: a model, built if none is given, and demonstrations to imitate."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from loomrl.algorithms.language.build import build_reading, build_seeing
from loomrl.algorithms.language.corpus import NO_WAYS, Ways, conversations, demonstrations
from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.resolved import Resolved
from loomrl.algorithms.language.steering import open_steering
from loomrl.algorithms.schedule import open_schedule
from loomrl.artifacts import open_artifacts
from loomrl.config import DPO, KTO, SFT, Architecture, CosineRate, LanguageWeave, Remote
from loomrl.errors import ConfigError
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.rewards import open_shaping
from loomrl.gym.task_mixture import TaskMixture, open_task_source
from loomrl.inference.chat import pictures_of
from loomrl.inference.experts import attach
from loomrl.inference.gguf import model_folder
from loomrl.inference.merged import whole_model
from loomrl.inference.model import Files, open_model, open_tokenizer, save_model
from loomrl.inference.vision import open_vision
from loomrl.run.version import copied
from loomrl.store import LoomDB
from loomrl.store.runs import POLICIES
from loomrl.types import Task

Opened = tuple[PreTrainedModel, PreTrainedTokenizerBase, Files | None]
"""A model with what belongs to it."""
AT_ONCE = 10
"""Optimizer steps of the warm start in one update of the learners."""
TEXTS = 2000
"""Demonstrations from which a tokenizer is learnt."""


def ensure_origin(resolved: Resolved, mixture: TaskMixture, db: LoomDB) -> None:
    """Store the model that the run begins with, its parent's or a new one, unless it has a path or is there already."""
    experiment = resolved.experiment
    algorithm = resolved.algorithm
    artifacts = open_artifacts(experiment.artifact_url)
    if resolved.model.path is not None:
        model_folder(resolved.model.path, experiment.artifact_url)  # here, before every other process asks for it
        return
    if artifacts.exists(resolved.built_name):
        return
    if experiment.parent is not None:
        checkpoint = copied(POLICIES.require(db, experiment.parent), db)
        folder = whole_model(checkpoint, trust_remote_code=resolved.model.trust_remote_code)
        artifacts.put_folder(resolved.built_name, folder)
        shutil.rmtree(checkpoint.parent)
        return
    given = algorithm.model.path is not None
    model, tokenizer, vision = _open_given(resolved) if given else _new(resolved, mixture)
    if isinstance(algorithm, LanguageWeave) and algorithm.experts > 1:
        attach(model, algorithm.experts, algorithm.expert_rank, seed=experiment.seed)
    with tempfile.TemporaryDirectory(prefix="loomrl-model-") as made:
        save_model(model, tokenizer, Path(made), vision=vision)
        artifacts.put_folder(resolved.built_name, Path(made))


def _open_given(resolved: Resolved) -> Opened:
    """The model of a path."""
    settings = resolved.algorithm.model
    folder = model_folder(str(settings.path), resolved.experiment.artifact_url)
    trusts = settings.trust_remote_code
    return (
        open_model(folder, dtype=settings.dtype, trust_remote_code=trusts),
        open_tokenizer(folder, trust_remote_code=trusts),
        open_vision(folder, trust_remote_code=trusts),
    )


def _new(resolved: Resolved, mixture: TaskMixture) -> Opened:
    """A model without training, with a tokenizer for the texts of the warm start."""
    experiment = resolved.experiment
    algorithm = resolved.algorithm
    architecture = algorithm.model.build or Architecture()
    draws = _draws(resolved, mixture)
    told = conversations(draws, algorithm.warm_start, seed=experiment.seed, ways=_ways(resolved), texts=TEXTS)
    try:
        messages = [message for said in islice(told, TEXTS) for message in said]
    except NotImplementedError as error:
        raise ConfigError(
            f"a model that is built learns its words from right answers: {error} Or begin with an algorithm.model.path."
        ) from None
    if architecture.vision is None and pictures_of(messages):
        raise ConfigError(
            "the environments show pictures, and algorithm.model.build has no vision: give it one "
            "(algorithm.model.build.vision={}), or choose a model.path that sees."
        )
    texts = [message.content for message in messages]
    built = build_seeing if architecture.vision is not None else build_reading
    return built(architecture, texts, context=algorithm.model.context, seed=experiment.seed)


def lessons(resolved: Resolved, mixture: TaskMixture) -> Iterator[tuple[list[Sample], float, int]]:
    """The warm start in parts: samples, learning rate, optimizer steps. It rises briefly, then falls along a cosine."""
    warm_start = resolved.algorithm.warm_start
    shape = CosineRate(warmup=max(1, warm_start.steps // 20), floor=0.05)
    schedule = open_schedule(warm_start.learning_rate, shape, warm_start.steps)
    trusts = resolved.model.trust_remote_code
    tokenizer = open_tokenizer(resolved.origin, trust_remote_code=trusts)
    vision = open_vision(resolved.origin, trust_remote_code=trusts)
    seed = resolved.experiment.seed
    draws = _draws(resolved, mixture)
    ways = _ways(resolved)
    source = demonstrations(draws, warm_start, tokenizer, seed=seed, vision=vision, ways=ways)
    for first in range(0, warm_start.steps, AT_ONCE):
        steps = min(AT_ONCE, warm_start.steps - first)
        samples = [
            Sample(np.asarray(d.ids, np.int32), np.asarray(d.mask, np.bool_), pictures=d.pictures)
            for d in islice(source, warm_start.batch_size * steps)
        ]
        yield samples, schedule.rate(first), steps


def wants_reference(resolved: Resolved) -> bool:
    """True if the learners keep the reference policy beside the one that learns."""
    algorithm = resolved.algorithm
    if isinstance(algorithm, SFT | Remote):
        return False
    if isinstance(algorithm, DPO | KTO):
        return True
    return algorithm.kl.coefficient > 0 or algorithm.kl.watch or resolved.experiment.train.stop.kl is not None


def _ways(resolved: Resolved) -> Ways:
    """Formats by objective, if there are some."""
    return resolved.algorithm.shown if isinstance(resolved.algorithm, LanguageWeave) else NO_WAYS


def _draws(resolved: Resolved, mixture: TaskMixture) -> Iterator[tuple[BaseEnvironment, Task]]:
    """Without end, the tasks that the curriculum begins with."""
    experiment = resolved.experiment
    curriculum = open_task_source(mixture, experiment.curriculum, seed=experiment.seed)
    rng = random.Random(f"{experiment.seed}/corpus")
    steered = open_steering(resolved.algorithm, mixture, list(open_shaping(experiment.rewards).weights))
    while True:
        draw = curriculum.draw(rng)
        if steered is not None:
            draw = replace(draw, preference=steered.draw(rng))
        member = mixture.member(draw)
        yield member.environment, member.task(draw)
