"""`loomrl data judge`: what policies would earn, from episodes that another one played."""

import re
from collections.abc import Sequence
from typing import Any

from loomrl.config import AnyExperiment, ControlExperiment, LoggedData
from loomrl.control.logged import ID
from loomrl.control.play import ActingPolicy
from loomrl.control.policy import ControlPolicy
from loomrl.errors import ConfigError
from loomrl.evaluation.offpolicy import OffPolicy, judge_logged
from loomrl.experiments.evaluate_control import find_acts
from loomrl.feedback.logged import read_logged
from loomrl.store import open_store


def data_of(id: str) -> LoggedData:
    """The Minari data set of this id, else the one of LoomDB."""
    return LoggedData(minari=id) if re.fullmatch(ID, id) else LoggedData(dataset=id)


def judge_named(
    experiment: AnyExperiment, id: str, policies: Sequence[str], *, gamma: float, greedy: bool
) -> dict[str, OffPolicy]:
    """Estimates of each policy from the data set; policies are those of `loomrl evaluate --policy`."""
    if not isinstance(experiment, ControlExperiment):
        raise ConfigError(f"experiment {experiment.name!r} is one of language: its logs have no steps of control.")
    if not policies:
        raise ConfigError("name a policy to judge: RUN, RUN/NUMBER, or --policy with the folder of an exported one.")
    settings = experiment.environment.settings
    found = {}
    with open_store(experiment.store_url) as db:
        for name in policies:
            policy = find_acts(name, settings, db)[1]
            found[name] = judge_policy(policy, data_of(id), experiment.store_url, gamma=gamma, greedy=greedy)
    return found


def judge_policy(
    policy: ActingPolicy, data: LoggedData, store_url: str, *, gamma: float, greedy: bool, confidence: float = 0.95
) -> OffPolicy:
    """The estimate of a policy from the data set; a ConfigError if its probabilities are unknown."""
    if not isinstance(policy, ControlPolicy):
        raise ConfigError("only a trained or exported policy can be judged by logs: of others no probability is known.")
    episodes = read_logged(data, policy.observation_space, policy.action_space, store_url=store_url)
    return judge_logged(episodes, policy, gamma=gamma, greedy=greedy, confidence=confidence)


def as_rows(found: dict[str, OffPolicy]) -> list[tuple[str, ...]]:
    """A row per policy, and first that of the one that played."""
    first = next(iter(found.values()))
    rows: list[tuple[str, ...]] = [("as logged", _format_interval(first.logged), "", "", f"{first.logged.count}")]
    for name, one in found.items():
        rows.append(
            (
                name,
                _format_interval(one.dr),
                _format_interval(one.snips),
                _format_interval(one.ips),
                f"{one.effective:.1f}",
            )
        )
    return rows


def _format_interval(interval: Any) -> str:
    return f"{interval.mean:.3g} [{interval.low:.3g}, {interval.high:.3g}]"
