"""The check before a run starts: code, folders, environments and spaces that an experiment names."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from loomrl.config import AnyRoot, ControlExperiment, Experiment, LanguageModel, LoopExperiment
from loomrl.config.rewards import ClassifierPart
from loomrl.errors import ConfigError
from loomrl.inference.gguf import find_model
from loomrl.named import named


def check_parts(experiment: AnyRoot) -> None:
    """A ConfigError for code, a folder, an environment, a family or a space that a run could not use.

    A run would find out after many seconds, once torch and Ray are there. Environments are made, and closed again.
    """
    for path, entry_point in _entry_points(experiment.plain):
        named(entry_point, what=path)
    for path, folder in _folders(experiment):
        if folder is not None and "://" not in folder and not find_model(folder).exists():
            raise ConfigError(f"{path}={folder!r}: there is no such folder, seen from {Path.cwd()}. Is it spelt right?")
    if isinstance(experiment, LoopExperiment):
        check_parts(experiment.training)
    elif isinstance(experiment, ControlExperiment):
        _check_spaces(experiment)
    elif isinstance(experiment, Experiment):
        _check_environments(experiment)
        _check_conversations(experiment)


def _entry_points(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every setting called `entry_point`, by its path."""
    parts: Sequence[tuple[Any, Any]] = ()
    if isinstance(tree, Mapping):
        parts = list(tree.items())
    elif isinstance(tree, list | tuple):
        parts = list(enumerate(tree))
    for name, value in parts:
        where = f"{path}.{name}" if path else str(name)
        if name == "entry_point" and isinstance(value, str):
            yield where, value
        else:
            yield from _entry_points(value, where)


def _folders(experiment: AnyRoot) -> Iterator[tuple[str, str | None]]:
    if not isinstance(experiment, Experiment):
        return
    for at, part in enumerate(experiment.rewards.parts):
        if isinstance(part, ClassifierPart):
            yield f"rewards.parts.{at}.path", part.path
    model = getattr(experiment.algorithm, "model", None)
    yield "algorithm.model.path", getattr(model, "path", None)
    yield "algorithm.kl.teacher", getattr(getattr(experiment.algorithm, "kl", None), "teacher", None)


def _check_environments(experiment: Experiment) -> None:
    """Environments, their families and settings, and templates."""
    from loomrl.gym.task_mixture import gather

    mixture = gather(experiment.environments, experiment.templates, lambda id: (id, ""))
    try:
        _ = mixture.families
    finally:
        for member in mixture.members.values():
            asyncio.run(member.environment.close())


def _check_conversations(experiment: Experiment) -> None:
    """Every line of a file of conversations and, where the model is a folder already, its tokens."""
    if experiment.data is None or experiment.data.file is None:
        return
    from loomrl.feedback.chat_file import read_chat_files

    files = read_chat_files(experiment.data)
    model = getattr(experiment.algorithm, "model", None)
    if isinstance(model, LanguageModel) and model.path is not None and (folder := find_model(model.path)).is_dir():
        from loomrl.algorithms.language.conversations import encode_files  # with torch

        encode_files(files, folder, context=model.context, trust_remote_code=model.trust_remote_code)


def _check_spaces(experiment: ControlExperiment) -> None:
    """The environment, and spaces that a network can take."""
    from loomrl.control.environment import agents_in, open_environment, open_environments
    from loomrl.control.space import acts, seen
    from loomrl.control.team import TeamVector

    choice = experiment.environment
    settings = experiment.environment.settings
    agents = agents_in(choice, settings)
    if agents > 1:
        with closing(open_environments(choice, agents, settings)) as team:
            parts = team.parts.values() if isinstance(team, TeamVector) else [team]
            spaces = [(part.single_observation_space, part.single_action_space) for part in parts]
    else:
        with closing(open_environment(choice, settings)) as one:
            spaces = [(one.observation_space, one.action_space)]
    for observed, acted in spaces:
        seen(observed)
        acts(acted)
