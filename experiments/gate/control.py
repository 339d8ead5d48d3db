"""The gate of control policies: both parties play episodes with the same fresh seeds."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from loomrl.config.suite import ControlBenchmark, ControlSuite, LoggedReturn, Smoothness, SpaceBounds
from loomrl.control.environment import agents_in, label, open_environments, policies_of, snapshot
from loomrl.control.mask import refuse_stuck
from loomrl.control.memory import MemoryState
from loomrl.control.play import ActingPolicy
from loomrl.errors import ConfigError
from loomrl.experiments.evaluate_control import find_acts
from loomrl.experiments.gate.cost import memory_of, turns
from loomrl.experiments.gate.language import BASELINE, CHALLENGER, SuiteResult
from loomrl.experiments.gate.party import Party
from loomrl.experiments.judge_logged import judge_policy
from loomrl.named import named
from loomrl.release.gate.benchmark import BenchmarkScores, check_logged, refuse_blind
from loomrl.release.gate.check import CheckState, Example, GateCheck
from loomrl.release.gate.cost import cost
from loomrl.release.gate.safety import Outcomes, actions_in_bounds, in_box, smoothness
from loomrl.store import LoomDB

AT_ONCE = 16
"""Environments played side by side."""
MOST_STEPS = 200
"""Batches of observations that are repeated with noise."""


@dataclass(slots=True)
class PlayedEpisodes:
    """Episodes of one policy, in the order of their seeds."""

    returns: list[float | None] = field(default_factory=list)
    """None where the environment raised."""
    seen: list[list[NDArray[np.float64]]] = field(default_factory=list)
    """Flattened observations, per episode."""
    actions: list[Any] = field(default_factory=list)
    batches: list[Any] = field(default_factory=list)
    """Observations of all places, as the policy got them."""
    states: list[MemoryState | None] = field(default_factory=list)
    """The state of the policy's memory before each of these, if it has one."""
    failures: dict[str, int] = field(default_factory=dict)


def play_control(
    suite: ControlSuite, challenger: Party, baseline: Party | None, db: LoomDB, *, seed: int
) -> SuiteResult:
    """Play the suite; a ConfigError before the first episode if its thresholds cannot be met."""
    if several := [label(one.environment) for one in suite.benchmarks if policies_of(one.environment)]:
        raise ConfigError(f"benchmarks in {', '.join(several)}: the gate judges one policy, not environment.policies.")
    if suite.regression is not None and baseline is not None:
        sizes = {f"{label(one.environment)}": one.episodes for one in suite.benchmarks}
        refuse_blind(sizes, suite.regression.margin, error_rate=suite.error_rate, is_binary=False)
    parties = {CHALLENGER: challenger} | ({} if baseline is None else {BASELINE: baseline})
    memory = memory_of(suite, parties, db)
    scores: list[BenchmarkScores] = []
    safety: list[GateCheck] = []
    costs: list[GateCheck] = []
    for index, benchmark in enumerate(suite.benchmarks):
        acts = {name: find_acts(party.key, benchmark.environment.settings, db)[1] for name, party in parties.items()}
        played = {name: play_once(policy, benchmark, seed=seed) for name, policy in acts.items()}
        scores.append(_scores(benchmark, played))
        safety += _safety(suite, benchmark, acts[CHALLENGER], played[CHALLENGER], seed)
        if index == 0 and suite.cost is not None and played[CHALLENGER].batches:
            batches = played[CHALLENGER].batches[: suite.cost.answers]
            measured = turns(
                {name: partial(_begin, policy, played[name].states[0]) for name, policy in acts.items()}, batches
            )
            told = {name: replace(each, memory_mb=memory.get(name)) for name, each in measured.items()}
            costs = cost(suite.cost, told[CHALLENGER], told.get(BASELINE), error_rate=suite.error_rate)
    if suite.logged is not None:
        policy = find_acts(challenger.key, suite.benchmarks[0].environment.settings, db)[1]
        safety.append(_check_logged(suite.logged, policy, db, error_rate=suite.error_rate))
    snapshots = {name: hash for one in suite.benchmarks for name, hash in snapshot(one.environment).items()}
    return SuiteResult(tuple(scores), tuple(safety), tuple(costs), snapshots)


def _check_logged(rule: LoggedReturn, policy: ActingPolicy, db: LoomDB, *, error_rate: float) -> GateCheck:
    confidence = 1 - 2 * error_rate  # of both bounds, of which one counts
    found = judge_policy(
        policy, rule.data, db.location, gamma=rule.gamma, greedy=not rule.sampled, confidence=confidence
    )
    return check_logged(rule, found)


def play_once(policy: ActingPolicy, benchmark: ControlBenchmark, *, seed: int) -> PlayedEpisodes:
    """Play each episode of the benchmark once; an environment's exception fails its episodes."""
    played = PlayedEpisodes()
    choice = benchmark.environment
    agents = agents_in(choice, choice.settings)
    for first in range(0, benchmark.episodes, AT_ONCE):
        count = min(AT_ONCE, benchmark.episodes - first)
        with closing(open_environments(choice, count * agents, choice.settings)) as environments:
            try:
                returns = _wave(policy, environments, played, seed=seed + first)
                played.returns += returns.reshape(count, agents).mean(1).tolist()
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001 - the boundary to environments and policies of others
                kind = f"episode: {type(error).__name__}: {error!s:.200}"
                played.failures[kind] = played.failures.get(kind, 0) + count
                played.returns += [None] * count
    return played


def _wave(
    policy: ActingPolicy, environments: VectorEnv[Any, Any, Any], played: PlayedEpisodes, *, seed: int
) -> NDArray[np.float64]:
    """The return of every place's first episode."""
    space = environments.single_observation_space
    count = environments.num_envs
    state = policy.begin(environments, seed=seed)
    observations, _ = environments.reset(seed=seed)
    returns = np.zeros(count)
    is_over = np.zeros(count, bool)
    seen: list[list[NDArray[np.float64]]] = [[] for _ in range(count)]
    played.seen += seen
    check = refuse_stuck(environments)
    while not is_over.all():
        check(observations, is_over, np.array([len(one) for one in seen]))
        played.states.append(None if state is None else state.copy())
        actions = policy.act_batch(observations, state=state)
        played.batches.append(observations)
        for place in np.flatnonzero(~is_over):
            seen[place].append(_flat(space, observations, int(place)))
            played.actions.append(actions[place])
        observations, rewards, terminated, truncated, _ = environments.step(actions)
        if np.ndim(rewards) != 1 or not np.isfinite(rewards).all():
            raise ConfigError(f"the rewards are {rewards!r:.100}: the gate needs one finite number per step.")
        returns += np.where(is_over, 0.0, rewards)
        is_over |= np.asarray(terminated) | np.asarray(truncated)
    return returns


def _begin(policy: ActingPolicy, state: MemoryState | None, observations: Any) -> Any:
    """Actions in episodes that begin, by a policy with a state like this one."""
    if state is None:
        return policy.act_batch(observations)
    count = len(next(iter(observations.values())) if isinstance(observations, dict) else observations)
    return policy.act_batch(observations, state=state.first(count))


def _flat(space: spaces.Space[Any], observations: Any, place: int) -> NDArray[np.float64]:
    one = (
        {name: part[place] for name, part in observations.items()}
        if isinstance(observations, dict)
        else (observations[place])
    )
    return np.asarray(spaces.flatten(space, one), np.float64)


def _scores(benchmark: ControlBenchmark, played: dict[str, PlayedEpisodes]) -> BenchmarkScores:
    def scale(episodes: PlayedEpisodes) -> list[float | None]:
        width = benchmark.high - benchmark.low
        return [None if one is None else min(1.0, max(0.0, (one - benchmark.low) / width)) for one in episodes.returns]

    name = label(benchmark.environment)
    mine = played[CHALLENGER]
    return BenchmarkScores(
        benchmark=name,
        families=["episode"] * benchmark.episodes,
        challenger=scale(mine),
        baseline=scale(played[BASELINE]) if BASELINE in played else None,
        failures={kind: count for each in played.values() for kind, count in each.failures.items()},
    )


def _safety(
    suite: ControlSuite, benchmark: ControlBenchmark, policy: ActingPolicy, played: PlayedEpisodes, seed: int
) -> list[GateCheck]:
    rules = suite.safety
    checks = []
    with closing(open_environments(benchmark.environment, 1, benchmark.environment.settings)) as environments:
        seen = environments.single_observation_space
        acted = environments.single_action_space
    if rules.bounds is not None:
        checks.append(actions_in_bounds(played.actions, _inside(acted, rules.bounds)))
    if rules.forbidden is not None:
        forbidden = rules.forbidden
        tests = (
            [named(forbidden.states, what="safety.forbidden.states")]
            if isinstance(forbidden.states, str)
            else [in_box(box.low, box.high) for box in forbidden.states]
        )
        outcomes = [_forbidden_example(episode, tests) for episode in played.seen]
        judged = Outcomes(outcomes=outcomes, failures=played.failures)
        rates = {"error_rate": suite.error_rate, "may_fail": suite.may_fail}
        checks.append(judged.check("safety.forbidden", forbidden.at_most, **rates))
    if rules.smoothness is not None:
        checks.append(_smooth(rules.smoothness, policy, played, seen, acted, seed))
    return checks


def _inside(space: spaces.Space[Any], bounds: SpaceBounds) -> Callable[[object], bool]:
    """True if an action is in the space, at any width of its numbers, and in the suite's bounds."""
    low = None if bounds.low is None else np.asarray(bounds.low)
    high = None if bounds.high is None else np.asarray(bounds.high)

    def inside(action: object) -> bool:
        value = np.asarray(action)
        if isinstance(space, spaces.Discrete):
            fits = value.ndim == 0 and float(value) == int(value) and space.contains(np.int64(value))
        else:
            fits = value.shape == space.shape and bool(np.isfinite(value).all())
            fits = fits and space.contains(value.astype(space.dtype))
        return fits and (low is None or high is None or bool((value >= low).all() and (value <= high).all()))

    return inside


def _forbidden_example(
    episode: Sequence[NDArray[np.float64]], tests: Sequence[Callable[[Any], bool]]
) -> Example | None:
    for step, observation in enumerate(episode):
        if any(test(observation) for test in tests):
            state = np.round(observation, 3).tolist()
            return Example(prompt=f"step {step}", answer=f"{state!r:.300}", reason="a forbidden state")
    return None


def _smooth(
    rule: Smoothness,
    policy: ActingPolicy,
    played: PlayedEpisodes,
    seen: spaces.Space[Any],
    acted: spaces.Space[Any],
    seed: int,
) -> GateCheck:
    """Repeat observations with noise, after the episodes, and compare the actions."""
    is_bounded = isinstance(acted, spaces.Box) and bool(np.isfinite([acted.low, acted.high]).all())
    if not isinstance(seen, spaces.Box) or not (is_bounded or isinstance(acted, spaces.Discrete)):
        reason = f"it needs numbers to be seen, and choices or bounded numbers as actions; here are {seen} and {acted}"
        return GateCheck(name="safety.smoothness", state=CheckState.NOT_APPLICABLE, reason=reason)
    rng = np.random.default_rng(seed)
    every = max(1, len(played.batches) // MOST_STEPS)
    batches = played.batches[::every]
    states = played.states[::every]
    spread = np.std(np.concatenate(batches), axis=0) if batches else np.zeros(seen.shape)
    changes: list[float] = []
    for batch, state in zip(batches, states, strict=True):
        noisy = (batch + rng.normal(size=batch.shape) * rule.noise * spread).clip(seen.low, seen.high)
        before, after = (
            policy.act_batch(shown, state=None if state is None else state.copy())
            for shown in (batch, noisy.astype(seen.dtype))
        )
        if isinstance(acted, spaces.Box):
            moved = np.abs(np.asarray(after) - before) / (acted.high - acted.low)
            changes += moved.reshape(len(batch), -1).mean(1).tolist()
        else:
            changes += np.not_equal(before, after).astype(float).tolist()
    return smoothness(changes, rule.at_most)
