"""Problems in the training of a control policy, detected in its returns and its learner's metrics.

A return has no scale of its own. It is measured by the run's gain, and by chance: the standard error of the mean of so
many episodes while nothing changes. Neighbouring rows share most of their episodes, and differ by less than that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from loomrl.telemetry.finding import (
    WINDOW,
    Examination,
    Finding,
    History,
    Row,
    noise,
    not_a_number_at,
    recent,
    values_of,
    windows,
)
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.number import amount, figure
from loomrl.telemetry.sink import STEP

EPISODES = 100
"""Episodes in a row's mean return."""
ENDS = 3
"""Rows that count as the start of a run, or as its end."""
SURE = 3.0
"""Standard errors beyond which a difference is significant."""
FALLEN = 0.5
"""Share of its gain whose loss is a collapse."""
FLAT_AFTER = 30
"""Rows before learning is called flat."""
ENOUGH = 200.0
"""Episodes before a lack of learning is reported."""
IDLE = 0.02
"""Difference from doing nothing, as a share of the run's range of returns, that counts as none."""
JUDGED = 8
"""Evaluations needed before they are compared …"""
UNSTEADY = 0.35
"""… and the share of the run's gain by which they may vary. Uniform draws from it would by 0.29."""
GRADIENT_GREW = 10.0
"""Growth over the run so far …"""
GRADIENT_LARGE = 5.0
"""… which matters only for gradients of this norm: those of a solved task are small, and grow with any surprise."""
ENTROPY_LEFT = 0.05
"""Share of the initial entropy below which a policy explores nothing new."""
ENTROPY_NONE = 0.01
"""Nats that count as zero at any initial entropy."""
VALUE_AFTER = 20
"""Rows that a value function may need to learn something."""
VALUE_EXPLAINS = 0.05
"""Share of the returns' variance below which a value function is useless."""
BEHIND = 0.25
"""Share of the run's range of returns by which greedy actions may earn less than sampled ones."""
EVALUATED_EPISODES = 20
"""Episodes of an evaluation by default."""
SATURATED = 0.8
"""Share of the actions' numbers at a bound beyond which a policy that learns nothing cannot find its way back."""
FAR = 0.1
"""Nats per action by which an update moves the policy; 0.01 to 0.03 are usual."""
CLIPPED = 0.4
"""Share of clipped actions; below 0.2 is usual."""


def is_control(history: History) -> bool:
    """True if a control policy was trained."""
    return any(metric in row for row in history for metric in (Metric.RETURN, Metric.ENV_STEPS_PER_S))


@dataclass(frozen=True, slots=True)
class Level:
    """A mean return with its standard error."""

    mean: float
    deviation: float

    def chance(self, other: "Level") -> float:
        """Difference from the other that may be chance."""
        return SURE * math.hypot(self.deviation, other.deviation)

    def is_above(self, other: "Level") -> bool:
        """True if it is significantly higher."""
        return self.mean - other.mean > self.chance(other)


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of the return in the current stage of the curriculum."""

    begun: Level
    best: Level
    now: Level
    rows: int
    episodes: float
    climbed: bool
    """True if there were easier stages before; then it started with what was learnt there."""

    @property
    def has_learnt(self) -> bool:
        """True if it is known to have improved."""
        return self.climbed or self.best.is_above(self.begun)

    @property
    def is_stuck(self) -> bool:
        """True if it is known not to have improved."""
        return self.episodes >= ENOUGH and not self.has_learnt


def return_trend(history: History) -> Trend | None:
    """The trend of the return; None if there are too few rows."""
    stages = values_of(history, Metric.STAGE)
    present = [row for row in history if not stages or row.get(Metric.STAGE) == stages[-1]]
    rows = [row for row in present if math.isfinite(row.get(Metric.RETURN, math.nan))]
    if len(rows) < WINDOW:
        return None
    returns = [row[Metric.RETURN] for row in rows]
    deviation = _deviation(returns, shared=_rows_per_mean(rows))
    climbed = len(present) < len(history)
    since = present[0].get(STEP, 0) if climbed else 0
    counts = [min(EPISODES, _episodes_until(row, since=since)) for row in rows]
    deviations = [deviation * math.sqrt(EPISODES / count) for count in counts]
    levels = [Level(*both) for both in zip(windows(returns), deviations[WINDOW // 2 :], strict=False)]
    best = max(levels, key=lambda level: level.mean - level.deviation)
    beginnings = (Level(fmean(returns[:ENDS]), deviations[ENDS - 1]), levels[0])
    return Trend(
        begun=max(beginnings, key=lambda level: best.mean - level.mean - best.chance(level)),
        best=best,
        now=Level(fmean(returns[-ENDS:]), deviations[-1]),
        rows=len(rows),
        episodes=_episodes_until(rows[-1], since=since),
        climbed=climbed,
    )


def _deviation(returns: Sequence[float], *, shared: float) -> float:
    """Standard error of one row's return while nothing changes; an episode counts in `shared` rows.

    Estimated from the change between rows, which excludes trends, by its median, which excludes bends.
    """
    changes = [later - earlier for earlier, later in pairwise(returns)]
    jolts = [abs(later - earlier) for earlier, later in pairwise(changes)]
    return 1.4826 * median(jolts) * math.sqrt(max(1.0, shared)) / 2


def _rows_per_mean(rows: History) -> float:
    """The number of rows in which an episode is among the latest."""
    lengths = values_of(rows, Metric.EPISODE_STEPS)
    if not lengths or STEP not in rows[0]:
        return 1.0
    return EPISODES * fmean(lengths) * (len(rows) - 1) / ((rows[-1][STEP] - rows[0][STEP]) or 1)


def _episodes_until(row: Row, *, since: float) -> float:
    """About how many episodes had ended by then, after step `since`; infinite if unknown."""
    count = (row.get(STEP, math.nan) - since) / row.get(Metric.EPISODE_STEPS, math.nan)
    return max(count, 1.0) if math.isfinite(count) else math.inf


class Remedies(NamedTuple):
    """Advice by an algorithm's own settings."""

    slower: str
    """The advice for smaller updates."""
    faster: str
    rate: str
    """The policy's learning rate."""
    more_chance: str
    less_chance: str
    value: str
    """The advice for a value function that explains nothing."""
    gradient: str = ""


PPO = Remedies(
    slower="Lower learning_rate, epochs or clip, or set target_kl",
    faster="Raise learning_rate, entropy_coefficient, rollout.environments or rollout.steps",
    rate="learning_rate",
    more_chance="entropy_coefficient",
    less_chance="entropy_coefficient, or let it fall to an entropy_floor,",
    value="Raise value_coefficient, learning_rate or epochs; set normalize_observations and normalize_rewards; leave "
    "out value_clip; give it a tower of its own (network.shared=false).",
    gradient="; lower value_coefficient if value/loss grew with it",
)
SAC = Remedies(
    slower="Lower actor_rate and critic_rate, or updates_per_step",
    faster="Raise actor_rate and critic_rate, updates_per_step, or warmup",
    rate="actor_rate",
    more_chance="target_entropy or warmup",
    less_chance="target_entropy",
    value="Raise critic_rate or updates_per_step, or lower gamma; set normalize_observations and normalize_rewards.",
)
DQN = Remedies(
    slower="Lower learning_rate or updates_per_step, or raise target_every",
    faster="Raise learning_rate, updates_per_step, n_step or exploration.steps",
    rate="learning_rate",
    more_chance="exploration.end or exploration.steps",
    less_chance="exploration.end",
    value="Raise learning_rate or updates_per_step, or lower gamma; set normalize_observations and normalize_rewards.",
)


def _remedies(history: History) -> Remedies:
    """Those of the algorithm, which its own metrics tell."""
    if any(Metric.POLICY_CLIP_FRACTION in row for row in history):
        return PPO
    return DQN if any(Metric.POLICY_RANDOM in row for row in history) else SAC


def not_a_number(history: History) -> Finding | None:
    """A return, loss, gradient or measure of the policy that is NaN or infinite."""
    found = not_a_number_at(history)
    if found is None:
        return None
    step, bad = found
    return Finding(
        "not a number",
        f"{bad} at step {step:,.0f}",
        f"Go back to the checkpoint before it. {_remedies(history).slower}; set normalize_observations and "
        "normalize_rewards, and look at the environment's own numbers.",
    )


def nothing_rewarded(history: History) -> Finding | None:
    """Every return is 0, in training and in evaluations: evidence as soon as there is one row."""
    returns = values_of(history, Metric.RETURN)
    if not returns or any(returns) or any(values_of(history, Metric.RETURN_EVALUATED)):
        return None
    return Finding(
        "nothing is rewarded",
        f"the return is 0 in all rows so far ({len(returns)}): there is nothing to reinforce",
        "Look whether the environment pays at all, and how seldom. Then begin with an easier one (curriculum), pay for "
        "progress, or let ppo look for what is new (curiosity={coefficient: 1.0}).",
    )


def policy_collapse(history: History) -> Finding | None:
    """Half of the gain is lost again, and that is significant."""
    trend = return_trend(history)
    if trend is None or not trend.has_learnt:
        return None
    gained = trend.best.mean - trend.begun.mean
    lost = trend.best.mean - trend.now.mean
    if lost <= FALLEN * gained or not trend.best.is_above(trend.now):
        return None
    return Finding(
        "policy collapse",
        f"return {amount(trend.now.mean)} now, {amount(trend.best.mean)} at its best, "
        f"{amount(trend.begun.mean)} at the start",
        f"Continue from the best checkpoint. {_remedies(history).slower}; raise rollout.environments or rollout.steps. "
        "train.stop.decline stops such a run by itself.",
    )


def updates_too_far(history: History) -> Finding | None:
    """An update moves the policy so far that the collected data no longer describes it."""
    moved = values_of(history, Metric.POLICY_STEP_KL)[-WINDOW:]
    clipped = recent(history, Metric.POLICY_CLIP_FRACTION)
    if len(moved) < WINDOW or clipped is None or ((kl := median(moved)) <= FAR and clipped <= CLIPPED):
        return None
    return Finding(
        "updates too far",
        f"an update moves the policy by {figure(kl)} nats per action and has {clipped:.0%} of the actions clipped, "
        f"over the last {WINDOW} rows",
        "Lower learning_rate or epochs, or set target_kl (0.02, say), which ends an update that has gone far enough.",
    )


def exploding_gradients(history: History) -> Finding | None:
    """Gradients that have grown far. Their norm by itself follows the scale of rewards."""
    norms = values_of(history, Metric.GRADIENT_NORM)
    if len(norms) < 2 * WINDOW:
        return None
    before = median(norms[:-WINDOW])
    now = median(norms[-WINDOW:])
    if now <= GRADIENT_LARGE or now <= GRADIENT_GREW * before:
        return None
    advice = _remedies(history)
    return Finding(
        "exploding gradients",
        f"gradient norm {now:.3g} over the last {WINDOW} rows, {before:.3g} before",
        f"{advice.slower}; lower clip_norm; set normalize_rewards{advice.gradient}.",
    )


def entropy_collapse(history: History) -> Finding | None:
    """The policy is nearly deterministic, and has never improved."""
    # Differential entropies of real-valued actions may be negative and have no natural zero: their deviation has one.
    deviations = values_of(history, Metric.POLICY_DEVIATION)
    spreads = deviations or values_of(history, Metric.POLICY_ENTROPY)
    trend = return_trend(history)
    if trend is None or not trend.is_stuck or len(spreads) < WINDOW or min(spreads) < 0:
        return None
    begun = fmean(spreads[:ENDS])
    now = fmean(spreads[-WINDOW:])
    if now > max(ENTROPY_NONE, ENTROPY_LEFT * begun):
        return None
    advice = _remedies(history)
    what = f"deviation of actions {now:.2g} of half their range" if deviations else f"entropy {now:.2g} nats"
    return Finding(
        "entropy collapse",
        f"{what}, {begun:.2g} at the start, while the return stays at {amount(trend.now.mean)}",
        f"Start again: nothing is explored any more. {advice.slower}, and raise {advice.more_chance}.",
    )


def saturated_actions(history: History) -> Finding | None:
    """Nearly all actions are at their bounds, where a small change does nothing, and the policy has never improved."""
    share = recent(history, Metric.POLICY_SATURATED)
    trend = return_trend(history)
    if trend is None or not trend.is_stuck or share is None or share <= SATURATED:
        return None
    begun = fmean(values_of(history, Metric.POLICY_SATURATED)[:ENDS])
    return Finding(
        "saturated actions",
        f"{share:.0%} of the actions' numbers are at a bound, {begun:.0%} at the start, while the return stays at "
        f"{amount(trend.now.mean)}",
        f"Start again with a lower {_remedies(history).rate}; set normalize_observations and normalize_rewards. "
        "Look whether the bounds of the action space are as wide as what does something "
        "(gymnasium.wrappers.RescaleAction).",
    )


def greedy_gap(history: History) -> Finding | None:
    """Evaluation after evaluation, greedy actions earn less than the sampled ones of the training."""
    trend = return_trend(history)
    ahead = values_of(history, Metric.RETURN_AHEAD)[-ENDS:]
    judged = values_of(history, Metric.RETURN_EVALUATED)
    if trend is None or len(ahead) < ENDS or not judged:
        return None
    greedy = fmean(judged[-ENDS:])
    behind = -fmean(ahead)
    returns = [*judged, *values_of(history, Metric.RETURN)]
    chance = SURE * trend.now.deviation * math.sqrt(1 + EPISODES / EVALUATED_EPISODES)
    if -max(ahead) <= BEHIND * (max(returns) - min(returns)) or behind <= chance:
        return None
    return Finding(
        "greedy actions earn less",
        f"in the last {ENDS} evaluations the greedy policy earns {amount(greedy)}, with sampled actions "
        f"{amount(greedy + behind)} in training",
        f"It needs its chance, as where it would go in circles: lower {_remedies(history).less_chance} and train "
        "on, or act with sampled actions (act(explore=True); `loomrl watch RUN --sampled` shows the difference).",
    )


def flat_learning(history: History) -> Finding | None:
    """The return has never improved significantly."""
    trend = return_trend(history)
    if trend is None or trend.rows < FLAT_AFTER or not trend.is_stuck or nothing_rewarded(history):
        return None
    return Finding(
        "flat learning",
        f"return {amount(trend.begun.mean)} at the start, {amount(trend.now.mean)} after {_steps(history)}, "
        f"{amount(trend.best.mean)} at its best; chance explains {amount(trend.best.chance(trend.begun))}",
        f"{_remedies(history).faster}; set normalize_observations and normalize_rewards. Train longer, or begin with "
        "an easier environment (curriculum), if rewards are rare.",
    )


def idle_policy(history: History) -> Finding | None:
    """It has learnt to do nothing: it earns the same as doing nothing, never more, and once earned less."""
    judged = values_of(history, Metric.RETURN_EVALUATED)
    idle = values_of(history, Metric.RETURN_IDLE)
    trained = values_of(history, Metric.RETURN)
    if len(judged) < 2 or not idle or not trained:
        return None
    nothing = idle[-1]
    begun = trained[0]
    slack = IDLE * (max(*trained, *judged, nothing) - min(*trained, *judged, nothing))
    is_idle = all(abs(one - nothing) <= slack for one in judged[-ENDS:])
    if not is_idle or max(*trained, *judged) > nothing + slack or begun >= nothing - slack:
        return None
    return Finding(
        "has learnt to do nothing",
        f"the greedy policy earns {amount(judged[-1])}, actions of zero {amount(nothing)} in the same episodes; "
        f"{amount(begun)} at the start, and never more than nothing earns",
        IDLE_REMEDY,
    )


def idle_value(history: History) -> Finding | None:
    """The value function predicts nothing of the returns, and the policy does not learn."""
    explained = values_of(history, Metric.VALUE_EXPLAINED_VARIANCE)
    trend = return_trend(history)
    if trend is None or not trend.is_stuck or len(explained) < VALUE_AFTER:
        return None
    now = fmean(explained[-WINDOW:])
    if now > VALUE_EXPLAINS:
        return None
    return Finding(
        "value function explains nothing",
        f"explained variance {now:.2f} over the last {WINDOW} rows, while the return stays at {amount(trend.now.mean)}",
        _remedies(history).value,
    )


def high_variance(history: History) -> Finding | None:
    """Between evaluations the greedy policy loses or regains much of the run's gain."""
    judged = values_of(history, Metric.RETURN_EVALUATED)[-WINDOW:]
    trend = return_trend(history)
    if trend is None or not trend.has_learnt or len(judged) < JUDGED:
        return None
    jumps = noise(judged)
    gained = max(*judged, trend.best.mean) - min(*judged, trend.begun.mean)
    if jumps <= UNSTEADY * gained:
        return None
    return Finding(
        "high variance",
        f"return moves by ±{amount(jumps)} from evaluation to evaluation (last {len(judged)}), "
        f"{amount(gained)} is all that was gained",
        "Raise evaluation.episodes to see whether it is the policy. "
        f"If it is: {_remedies(history).slower}, or raise rollout.environments or rollout.steps.",
    )


IDLE_REMEDY = (
    "Actions cost, and no episode has found what pays. Let ppo look for it (curiosity={coefficient: 1.0}, "
    "normalize_observations, normalize_rewards), begin with an easier environment (curriculum), or pay for progress."
)


def _steps(history: History) -> str:
    return f"{history[-1].get(STEP, len(history)):,.0f} steps"


EXAMINATIONS: tuple[Examination, ...] = (
    not_a_number,
    nothing_rewarded,
    policy_collapse,
    updates_too_far,
    exploding_gradients,
    entropy_collapse,
    saturated_actions,
    greedy_gap,
    flat_learning,
    idle_policy,
    idle_value,
    high_variance,
)
"""The most serious first."""
