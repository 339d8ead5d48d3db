"""The charts of a run's metrics: their sections, titles and descriptions, for the report and for the console."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from loomrl.telemetry.metric import PHASES, Metric, meaning_of
from loomrl.telemetry.number import Form, Unit, amount, figure, percent
from loomrl.telemetry.sink import STEP, TIME

COLORS = 8
"""Most lines of a chart."""
FAMILIES = {"Success of each family": Metric.SUCCESS, "Level of each family": Metric.LEVEL}
"""Sections with a chart for each environment and family."""
OTHERS = "Everything else that was measured"
"""The last section, which is folded."""
PHASE_TITLES = {"updates": "Seconds of an update", "steps": "Seconds between measurements"}
TITLES = {
    Metric.SUCCESS: "Success",
    Metric.RETURN: "Return",
    Metric.REWARD_TOTAL: "Reward",
    Metric.SUPERVISED_LOSS: "Loss on demonstrations",
    Metric.PREFERENCE_ACCURACY: "Pairs told apart",
    Metric.POLICY_LOSS: "Policy loss",
}
"""Titles of the metrics that can stand for a whole run, here and in lists of runs."""
SHARES = (Metric.SUCCESS, Metric.PREFERENCE_ACCURACY)
"""Those of them from 0 to 1, shown in percent."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: its title, a description, its metrics by their labels."""

    title: str
    note: str
    names: Mapping[str, str]
    span: tuple[float, float] | None = None
    form: Form = figure
    is_stacked: bool = False
    """True if its values are parts of a whole."""


def sections(names: Iterable[str], *, unit: Unit = "updates") -> dict[str, list[Panel]]:
    """The charts of these metrics, by the question that they answer. Every metric is in one; none is empty."""
    known = [name for name in dict.fromkeys(names) if name not in (STEP, TIME)]
    declared = {
        "Does it learn?": _learning(known),
        "How does the policy move?": _policy(),
        "Is the optimizer well?": _optimizer(),
        "What does it cost?": [*_effort(), _phases(unit)],
        **{title: _families(metric, known) for title, metric in FAMILIES.items()},
    }
    shown = {name for panels in declared.values() for panel in panels for name in panel.names.values()}
    declared[OTHERS] = [Panel(name, meaning_of(name), {name: name}) for name in sorted({*known} - shown)]
    present = {title: _present(panels, {*known}) for title, panels in declared.items()}
    return {title: panels for title, panels in present.items() if panels}


def _phases(unit: Unit) -> Panel:
    """The time of each phase of an update."""
    names = {phase.removeprefix("time/"): str(phase) for phase in PHASES}
    return Panel(PHASE_TITLES[unit], "The time that each phase takes, phase upon phase.", names, is_stacked=True)


def _present(panels: Sequence[Panel], known: set[str]) -> list[Panel]:
    kept = [
        replace(panel, names={label: name for label, name in panel.names.items() if name in known}) for panel in panels
    ]
    return [panel for panel in kept if panel.names]


def _panel(title: str, metric: Metric, form: Form = figure) -> Panel:
    return Panel(title, metric.meaning, {title: metric}, form=form)


def _learning(names: Sequence[str]) -> list[Panel]:
    parts = Metric.REWARD_PART.parts(names)[: COLORS - 1]
    rewards = {"total": str(Metric.REWARD_TOTAL), **{part: Metric.REWARD_PART.of(part) for part in parts}}
    returns = {
        "training": Metric.RETURN,
        "evaluation": Metric.RETURN_EVALUATED,
        "doing nothing": Metric.RETURN_IDLE,
    }
    successes = {
        "training" if Metric.EVALUATED in names else "success": Metric.SUCCESS,
        "held-out tasks": Metric.EVALUATED,
        "of the latest 100 episodes": Metric.SUCCESS_TOLD,
    }
    losses = {"learnt from": Metric.SUPERVISED_LOSS, "held-out conversations": Metric.EVALUATED_LOSS}
    note = "Mean of the latest 100 episodes of training; of the greedy policy, where it was evaluated."
    return [
        Panel(TITLES[Metric.RETURN], note, returns, form=amount),
        _panel("Episode length", Metric.EPISODE_STEPS, amount),
        _panel("Stage", Metric.STAGE),
        Panel(TITLES[Metric.SUCCESS], "Share of attempts that did what was asked.", successes, (0, 1), percent),
        Panel(TITLES[Metric.REWARD_TOTAL], "Mean of an attempt, and the parts it is made of.", rewards),
        Panel("Level", "Mean of the tasks attempted, 1 to 10.", {"level": Metric.LEVEL}),
        Panel(TITLES[Metric.SUPERVISED_LOSS], Metric.SUPERVISED_LOSS.meaning, losses),
        Panel(
            TITLES[Metric.PREFERENCE_ACCURACY],
            Metric.PREFERENCE_ACCURACY.meaning,
            {"learnt from": Metric.PREFERENCE_ACCURACY, "held-out pairs": Metric.EVALUATED_PAIRS},
            (0, 1),
            percent,
        ),
    ]


def _policy() -> list[Panel]:
    return [
        _panel("KL from the reference policy", Metric.POLICY_KL),
        _panel("Distance of one update", Metric.POLICY_STEP_KL),
        _panel("Entropy", Metric.POLICY_ENTROPY),
        _panel("Random choices", Metric.POLICY_RANDOM, percent),
        _panel("Clip fraction", Metric.POLICY_CLIP_FRACTION, percent),
        _panel("Actions at their bounds", Metric.POLICY_SATURATED, percent),
        _panel("Deviation of actions", Metric.POLICY_DEVIATION),
        _panel("Engine–learner drift", Metric.POLICY_DRIFT),
        _panel("Groups without signal", Metric.GROUPS_WITHOUT_SIGNAL, percent),
    ]


def _optimizer() -> list[Panel]:
    explained = Metric.VALUE_EXPLAINED_VARIANCE
    return [
        _panel(TITLES[Metric.POLICY_LOSS], Metric.POLICY_LOSS),
        _panel("Gradient norm", Metric.GRADIENT_NORM),
        _panel("Learning rate", Metric.LEARNING_RATE),
        _panel("Value loss", Metric.VALUE_LOSS),
        Panel("Explained variance", explained.meaning, {"value function": explained}, (-1, 1)),
        _panel("Gradients shortened", Metric.GRADIENT_CLIPPED, percent),
    ]


def _effort() -> list[Panel]:
    speeds = {"engine": Metric.ENGINE_TOKENS_PER_S, "learner": Metric.LEARNER_TOKENS_PER_S}
    shared = {"neither computes": Metric.IDLE, "both do": Metric.OVERLAP}
    lengths = {"written": Metric.LENGTH_ACTION, "read": Metric.LENGTH_PROMPT}
    return [
        _panel("Environment steps per second", Metric.ENV_STEPS_PER_S),
        Panel("Tokens per second", "Generated while attempting, learnt from while learning.", speeds),
        Panel("Engines and learner", "Shares of an update, without its evaluation.", shared, (0, 1), percent),
        Panel("Tokens of an attempt", "Written by the policy, and read by it.", lengths),
    ]


def _families(metric: Metric, names: Sequence[str]) -> list[Panel]:
    """A chart for each `Environment/family`."""
    parts = [part for part in metric.parts(names) if metric.of(part) != Metric.SUCCESS_TOLD]
    if metric is not Metric.SUCCESS:
        return [Panel(part, "", {part: metric.of(part)}) for part in parts]
    both = ({part: metric.of(part), "held-out tasks": Metric.EVALUATED.of(part)} for part in parts)
    return [Panel(part, "", each, (0, 1), percent) for part, each in zip(parts, both, strict=True)]
