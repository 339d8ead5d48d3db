"""The training doctor: problems of a run, detected in its metrics, with remedies.

Every examination is a pure function of the history and answers only if it has the metrics and enough updates. `recent`
is the last `WINDOW` updates, because one alone is no evidence. Language policies are judged by success, and examined
here; control policies are judged by their return, and examined in `diagnosis_control`.
"""

import math
from statistics import fmean, median

from loomrl.telemetry import diagnosis_control
from loomrl.telemetry.finding import (
    WINDOW,
    Examination,
    Finding,
    History,
    noise,
    not_a_number_at,
    recent,
    too_few,
    values_of,
    windows,
)
from loomrl.telemetry.metric import PHASES, Metric

__all__ = ["EXAMINATIONS", "Finding", "diagnose", "too_few"]

SOLVED = 0.9
"""Success above which little is left to learn, so that a missing signal or gradient is no problem."""
SURE = 0.7
"""Success above which a confident policy is fine, and failures are too rare for a value head to predict."""
FALLEN = 0.6
"""Share of its best success below which a policy has collapsed; noise and forgetting seldom cost so much."""
FALLEN_BY = 0.1
"""… and the minimum loss: from 0.05 to 0.02 is noise."""
LEVEL_SLACK = 0.25
"""Rise of the level within which success can still be compared."""
UNEARNED = 0.1
"""Share of attempts that are paid and not correct, from which reward and check should be compared."""
KL_EXPLODED = 5.0
"""Nats per token: each token now had 1/150 of its probability under the reference policy."""
FLAT_AFTER = 30
"""Updates before learning is called flat; progress often starts late."""
FLAT_GAIN = 0.03
"""Gain of success over the first window that is negligible."""
NOISY = 0.2
"""Standard deviation of success between updates. Eight all-or-nothing groups at even odds give 0.18; chance alone,
0.29.
"""
GRADIENT_EXPLODED = 100.0
"""A gradient norm that healthy runs do not reach."""
GRADIENT_GREW = 10.0
"""Growth over the run so far …"""
GRADIENT_LARGE = 5.0
"""… which matters only for gradients of this norm."""
GRADIENT_VANISHED = 1e-5
"""Norm below which a step of AdamW follows rounding errors."""
ENTROPY_LEFT = 0.05
"""Share of the initial entropy below which a policy explores nothing new."""
ENTROPY_NONE = 0.01
"""Nats per token that count as zero at any initial entropy."""
DRIFT = 0.05
"""Mean difference of log-probabilities. bfloat16 explains about 0.02, float32 less than 0.0001."""
VALUE_AFTER = 20
"""Updates that a value head may need to learn something."""
VALUE_EXPLAINS = 0.05
"""Share of the returns' variance below which a value head is useless."""
WITHOUT_SIGNAL = 0.8
"""Share of groups without different rewards; the rest is then too small to learn from."""

STARVED = 0.4
"""Share of time for which engines or learner wait for each other unnecessarily."""


def diagnose(history: History) -> list[Finding]:
    """The doctor's findings, the most serious first; empty for a healthy run, and for one with `too_few` metrics."""
    control = (*diagnosis_control.EXAMINATIONS, reward_hacking)
    examinations = control if diagnosis_control.is_control(history) else EXAMINATIONS
    return [finding for examine in examinations if (finding := examine(history)) is not None]


def _below(history: History, success: float) -> bool:
    """True if recent success is known to be below that."""
    now = recent(history, Metric.SUCCESS)
    return now is not None and now < success


def not_a_number(history: History) -> Finding | None:
    """A loss, gradient or measure of the policy that is NaN or infinite."""
    found = not_a_number_at(history)
    if found is None:
        return None
    step, bad = found
    return Finding(
        "not a number",
        f"{bad} at update {step:g}",
        "Go back to the checkpoint before it. Lower optimizer.learning_rate, bound rewards with reward_clip, "
        "and use dtype=float32 if it was bfloat16.",
    )


def nothing_rewarded(history: History) -> Finding | None:
    """Nothing has succeeded in any update, and all attempts earned the same; one update is evidence enough."""
    success = values_of(history, Metric.SUCCESS)
    rewards = values_of(history, Metric.REWARD_TOTAL)
    varied = len(set(rewards)) > 1 or any(values_of(history, Metric.REWARD_DEVIATION))
    if not success or any(success) or varied:
        return None
    earned = f", and every attempt earned {rewards[-1]:.3g}" if rewards else ""
    return Finding(
        "nothing is rewarded",
        f"success 0 in all updates so far ({len(success)}){earned}: there is nothing to reinforce",
        "Read attempts (samples in the report, or the console): do answers have the form that the environment asks "
        "for? Then begin with easier tasks (curriculum, families), a warm start "
        "(algorithm.warm_start.steps) or a better model, or pay for a part of what is asked (rewards.parts).",
    )


def reward_hacking(history: History) -> Finding | None:
    """Attempts that are paid and that a second check does not find correct: more than before, or all along."""
    unearned = values_of(history, Metric.REWARD_UNEARNED)
    remedy = "Read such attempts: mend the reward, then fork a version from before it began; or mend the check."
    if any(values_of(history, Metric.REWARD_HACKED)):
        rise = f"{unearned[0]:.0%} of the attempts were paid and not correct at first, {unearned[-1]:.0%} at last"
        return Finding("reward hacking", rise, remedy)
    now = recent(history, Metric.REWARD_UNEARNED)
    if now is None or now <= UNEARNED:
        return None
    told = f"{now:.0%} of the attempts over the last {WINDOW} updates are paid and, by the second check, not correct"
    return Finding("graders disagree", told, remedy)


def policy_collapse(history: History) -> Finding | None:
    """Success far below its best on tasks no harder than those of the best, or a KL beyond reason."""
    kl = recent(history, Metric.POLICY_KL)
    if kl is not None and kl > KL_EXPLODED:
        return Finding(
            "policy collapse",
            f"KL from the reference policy is {kl:.2f} nats per token, more than {KL_EXPLODED:g}",
            "Resume from the best checkpoint with kl.coefficient raised and optimizer.learning_rate lowered.",
        )
    now = recent(history, Metric.SUCCESS)
    if now is None:
        return None
    best = _best_on_equal_terms(history)
    if now > FALLEN * best or best - now < FALLEN_BY:
        return None
    return Finding(
        "policy collapse",
        f"success {now:.2f} over the last {WINDOW} updates, {best:.2f} at its best",
        "Resume from the best checkpoint. Lower optimizer.learning_rate or optimizer.epochs, tighten clip, "
        "or raise kl.coefficient; train.stop.decline stops such a run by itself.",
    )


def _best_on_equal_terms(history: History) -> float:
    """The best windowed success at levels not below the current one."""
    rows = [row for row in history if math.isfinite(row.get(Metric.SUCCESS, math.nan))]
    success = windows([row[Metric.SUCCESS] for row in rows])
    levels = windows([row.get(Metric.LEVEL, 0.0) for row in rows])
    return max(s for s, level in zip(success, levels, strict=True) if level >= levels[-1] - LEVEL_SLACK)


def flat_learning(history: History) -> Finding | None:
    """No window beats the first by more than chance, and tasks did not become harder."""
    success = values_of(history, Metric.SUCCESS)
    levels = values_of(history, Metric.LEVEL)
    if len(success) < FLAT_AFTER or not _below(history, SOLVED) or nothing_rewarded(history):
        return None
    means = windows(success)
    gain = max(means) - means[0]
    chance = 3 * noise(success) * math.sqrt(2 / WINDOW)
    harder = fmean(levels[-WINDOW:]) - fmean(levels[:WINDOW]) if levels else 0.0
    if gain > max(FLAT_GAIN, chance) or harder > LEVEL_SLACK:
        return None
    return Finding(
        "flat learning",
        f"success {means[0]:.2f} at the start, {means[-1]:.2f} after {len(success)} updates; "
        f"the best window gained {gain:.3f}",
        "Raise optimizer.learning_rate, or begin with easier tasks (curriculum) or a warm start whose attempts differ: "
        "without some success and some variety there is nothing to reinforce.",
    )


def high_variance(history: History) -> Finding | None:
    """Success varies between updates more than the draw of tasks explains."""
    success = values_of(history, Metric.SUCCESS)[-2 * WINDOW :]
    if len(success) < 2 * WINDOW or (jumps := noise(success)) <= NOISY:
        return None
    return Finding(
        "high variance",
        f"success moves by ±{jumps:.2f} from update to update (last {len(success)})",
        "Raise rollout.groups_per_update; lower optimizer.learning_rate; mix levels and families more evenly.",
    )


def exploding_gradients(history: History) -> Finding | None:
    """Gradients that are very long, or have grown far."""
    norms = values_of(history, Metric.GRADIENT_NORM)
    if len(norms) < 2 * WINDOW:
        return None
    before = median(norms[:-WINDOW])
    now = median(norms[-WINDOW:])
    if now <= GRADIENT_EXPLODED and (now <= GRADIENT_LARGE or now <= GRADIENT_GREW * before):
        return None
    return Finding(
        "exploding gradients",
        f"gradient norm {now:.3g} over the last {WINDOW} updates, {before:.3g} before",
        "Lower optimizer.learning_rate or optimizer.clip_norm; bound rewards with reward_clip; "
        "lower value_coefficient if value/loss grew with it.",
    )


def vanishing_gradients(history: History) -> Finding | None:
    """Gradients too small to learn from, although the tasks are not solved."""
    norms = values_of(history, Metric.GRADIENT_NORM)
    if len(norms) < WINDOW or not _below(history, SOLVED) or nothing_rewarded(history):
        return None
    if (now := median(norms[-WINDOW:])) >= GRADIENT_VANISHED:
        return None
    return Finding(
        "vanishing gradients",
        f"gradient norm {now:.1e} over the last {WINDOW} updates while tasks are unsolved",
        "Look whether attempts of a group differ in reward at all (groups/without_signal) and whether the clip or "
        "importance_cap keeps every token from teaching (policy/clip_fraction).",
    )


def entropy_collapse(history: History) -> Finding | None:
    """The policy is nearly deterministic although it is mostly wrong."""
    now = recent(history, Metric.POLICY_ENTROPY)
    # Differential entropies of continuous actions may be negative and have no natural zero.
    if now is None or not _below(history, SURE) or min(values_of(history, Metric.POLICY_ENTROPY)) < 0:
        return None
    begun = fmean(values_of(history, Metric.POLICY_ENTROPY)[:WINDOW])
    if now > max(ENTROPY_NONE, ENTROPY_LEFT * begun):
        return None
    success = recent(history, Metric.SUCCESS)
    return Finding(
        "entropy collapse",
        f"entropy {now:.4f} nats per token, {begun:.3f} at the start, at success {success:.2f}",
        "Go back to a checkpoint with more entropy. Raise entropy_coefficient or clip.high, raise kl.coefficient, "
        "lower optimizer.learning_rate; sample at temperature 1.",
    )


def engine_drift(history: History) -> Finding | None:
    """Engine and learner disagree about the probability of the same tokens."""
    drift = recent(history, Metric.POLICY_DRIFT)
    alarms = values_of(history, Metric.POLICY_DRIFT_ALARM)
    alarmed = any(alarms[-WINDOW:])
    if drift is None or (drift <= DRIFT and not alarmed):
        return None
    most = f"; beyond engine.checks.drift in {sum(alarms):g} of {len(alarms)} updates" if any(alarms) else ""
    return Finding(
        "engine-learner drift",
        f"log-probabilities differ by {drift:.3f} on average, where rounding explains {DRIFT:g}{most}",
        "The engine may run older weights or another precision: compare dtype, versions (hub.max_staleness) and the "
        "chat template. Keep importance_cap until it is found.",
    )


def idle_value(history: History) -> Finding | None:
    """The value head predicts nothing of the returns, although they differ."""
    values = values_of(history, Metric.VALUE_EXPLAINED_VARIANCE)
    if len(values) < VALUE_AFTER or not _below(history, SURE) or (now := fmean(values[-WINDOW:])) > VALUE_EXPLAINS:
        return None
    return Finding(
        "value function explains nothing",
        f"explained variance {now:.2f} over the last {WINDOW} updates",
        "Raise value_coefficient or optimizer.epochs, widen value_clip – or use grpo or rloo, which need no values.",
    )


def no_signal(history: History) -> Finding | None:
    """Nearly all groups lack different rewards to learn from."""
    share = recent(history, Metric.GROUPS_WITHOUT_SIGNAL)
    success = recent(history, Metric.SUCCESS)
    if share is None or share <= WITHOUT_SIGNAL or not _below(history, SOLVED) or nothing_rewarded(history):
        return None
    return Finding(
        "groups without signal",
        f"in {share:.0%} of the groups all attempts earn the same, at success {success:.2f}",
        "Choose levels at which some attempts succeed and some fail (curriculum.kind=adaptive), raise "
        "rollout.group_size or the sampling temperature, or give partial credit in the reward.",
    )


def starvation(history: History) -> Finding | None:
    """Rollouts and learning overlap, and one of them mostly waits for the other."""
    rows = [row for row in history if Metric.OVERLAP in row][-WINDOW:]
    whole = sum(sum(row.get(phase, 0.0) for phase in PHASES) for row in rows)
    if len(rows) < WINDOW or not whole:
        return None
    learner = sum(row[Metric.TIME_ROLLOUT] for row in rows) / whole
    engines = sum(row[Metric.TIME_ENGINE_IDLE] for row in rows) / whole
    if max(learner, engines) <= STARVED:
        return None
    if learner > engines:
        return Finding(
            "starvation",
            f"the learner waits for rollouts {learner:.0%} of the time (last {len(rows)} updates)",
            "Raise rollout.runners or rollout.concurrency, make environments faster, or raise hub.max_staleness if the "
            f"engines are idle, too (now {engines:.0%}).",
        )
    return Finding(
        "starvation",
        f"engines have nothing to do {engines:.0%} of the time (last {len(rows)} updates)",
        "Add learners (algorithm.learners.count), lower optimizer.epochs or rollout.runners; raise hub.max_staleness "
        f"if the learner waits, too (now {learner:.0%}).",
    )


EXAMINATIONS: tuple[Examination, ...] = (
    not_a_number,
    nothing_rewarded,
    reward_hacking,
    policy_collapse,
    exploding_gradients,
    engine_drift,
    entropy_collapse,
    vanishing_gradients,
    no_signal,
    flat_learning,
    idle_value,
    high_variance,
    starvation,
)
