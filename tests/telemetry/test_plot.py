"""Pictures as files: opened as what they are, and every mark where it belongs."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from loomrl.evaluation.front import FrontReport, PreferenceEpisodes, judge_front
from loomrl.telemetry.parallel import parallel_axes
from loomrl.telemetry.plot import COLOURS, mix_colours, plot_fronts, plot_trials

SVG = "{http://www.w3.org/2000/svg}"
TRIALS: list[dict[str, Any]] = [
    {"rate": 1e-4, "kind": "ppo", "size": 2, "score": 0.0},
    {"rate": 1e-3, "kind": "sac", "size": 6, "score": 10.0},
    {"rate": 1e-2, "kind": "ppo", "size": 10, "score": 5.0},
]


def texts(file: Path) -> list[str]:
    return ["".join(text.itertext()) for text in ET.parse(file).iter(f"{SVG}text")]


def drawn(file: Path, name: str) -> list[ET.Element]:
    return [group for group in ET.parse(file).iter(f"{SVG}g") if group.get("id") == name]


def test_trials_are_where_the_axes_say() -> None:
    (rate, kind, size, score), sentences = parallel_axes(TRIALS, logarithmic={"rate"})
    assert sentences[0] == "rate 1e-4; kind ppo; size 2; score 0"
    assert "score 10" in sentences[-1], "the best is last, so that it is on top"
    assert list(rate.places) == pytest.approx([0, 1, 0.5])  # a power of ten apart each
    assert list(kind.places) == [0, 0, 1]
    assert (kind.ticks[0][1], kind.ticks[1][1]) == ("ppo", "sac")
    assert list(score.places) == [0, 0.5, 1]
    assert size.ticks[0] == (0, "2")
    lowest, _ = parallel_axes(TRIALS, best="min")
    assert lowest[-1].places[-1] == 0


def test_a_logarithmic_axis_of_one_power_has_ticks_between_its_ends() -> None:
    (rate, _), _ = parallel_axes([{"rate": 2e-4, "s": 1.0}, {"rate": 9e-4, "s": 2.0}], logarithmic={"rate"})
    assert [word for _, word in rate.ticks] == ["1e-4", "2e-4", "5e-4", "0.001"]


def test_the_best_trial_is_wide_and_odd_names_are_text(tmp_path: Path) -> None:
    file = tmp_path / "new" / "sweep.svg"
    long = "a.very.long.path.of.a.setting.<&>"
    trials = [{long: {"kind": "$x$"}, "n": True, "score": 3.0}, {long: "a word that is very long", "n": 1, "score": 4}]
    plot_trials(file, "<&>", trials)
    assert {"<&>", "…" + long[-26:], "a word that is …", '{"kind": "$x$"}'} <= set(texts(file))
    widths = [
        drawn(file, f"{long} {value}; n {n}; score {score}")[0].find(f"{SVG}path").get("style")  # type: ignore[union-attr]
        for value, n, score in (('{"kind": "$x$"}', "true", 3), ("a word that is very long", 1, 4))
    ]
    assert ["stroke-width: 3.5" in (style or "") for style in widths] == [False, True]
    plot_trials(tmp_path / "one.png", "t", TRIALS[:1])
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def report(
    returns: ArrayLike,
    *,
    objectives: Sequence[str] = ("a", "b"),
    reference: Sequence[float] | None = None,
    name: str = "p",
) -> FrontReport:
    """Preferences in order, from all weight on the last objective to all on the first."""
    returns_PEH = np.asarray(returns, np.float64)
    first = np.linspace(0, 1, len(returns_PEH))
    rest = [(1 - first) / (len(objectives) - 1)] * (len(objectives) - 1)
    preferences = np.stack([first, *rest], axis=1).astype(np.float32)
    played = PreferenceEpisodes(preferences, returns_PEH, np.ones(returns_PEH.shape[:2], np.int64))
    return judge_front(name, played, objectives=objectives, reference=reference, confidence=0.95)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "front.svg"


def test_a_front_says_what_it_is_worth_and_shows_what_lies_below(file: Path) -> None:
    plot_fronts(file, [report([[[1, 3]], [[0, 0]], [[3, 1]]], reference=(0, 0))])
    said = texts(file)
    assert "hypervolume 5 from (0, 0), 2 points on the front, expected utility 2.67, sparsity 8" in said
    assert {"reference", "not on the front", "by preference", "a", "b"} <= set(said)
    assert len(drawn(file, "front")) == len(drawn(file, "hypervolume")) == 1


def test_a_reference_far_away_is_on_the_edge_and_says_so(file: Path) -> None:
    plot_fronts(file, [report([[[0, 0]], [[1, -1]]], reference=(-1, -2))])
    assert "reference" in texts(file)
    plot_fronts(file, [report([[[0, 0]], [[1, -1]]], reference=(-1, -200))])
    assert "reference (−1, −200), farther out" in texts(file)


def test_intervals_are_explained_where_there_are_any(file: Path) -> None:
    plot_fronts(file, [report([[[1, 3]], [[3, 1]]])])
    assert "bars: 95% confidence" not in texts(file)
    plot_fronts(file, [report([[[1, 3], [2, 3]], [[4, 1], [4, 2]]])])
    assert "bars: 95% confidence" in texts(file)


def test_of_three_objectives_every_two_have_a_panel(file: Path) -> None:
    plot_fronts(file, [report([[[10, 0, 0]], [[0, 5, 0]], [[0, 0, 7]]], objectives=("x", "y", "z"))])
    assert [texts(file).count(name) for name in "xyz"] == [3, 3, 3]  # two panels each, and the colours
    assert drawn(file, "front") == []


def test_several_policies_and_hostile_names_are_drawn(file: Path) -> None:
    hostile = "</text><script>alert(1)</script>&\"'"
    fair = report([[[0, 2]], [[4, 0]]], objectives=(hostile, "b"), name="fair")
    plot_fronts(file, [fair, report([[[7, -3]]], objectives=(hostile, "b"), reference=(7, -3), name="good")])
    said = texts(file)
    assert {"fair", "good"} <= set(said)
    assert said.count(hostile) == 3  # two axes and the colour
    assert not list(ET.parse(file).iter(f"{SVG}script"))


def test_colours_are_the_objectives_own_at_the_corners() -> None:
    assert [mix_colours(row) for row in np.eye(3).tolist()] == list(COLOURS[:3])
    assert len(mix_colours(np.full(12, 1 / 12).tolist())) == 7
