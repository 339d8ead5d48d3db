"""Parallel coordinates: every trial is a line, and its values are where the axes say."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from loomrl.telemetry.parallel import BETWEEN, BOTTOM, LEFT, TOP, draw_parallel

SVG = "{http://www.w3.org/2000/svg}"
TRIALS: list[dict[str, Any]] = [
    {"rate": 1e-4, "kind": "ppo", "size": 2, "score": 0.0},
    {"rate": 1e-3, "kind": "sac", "size": 6, "score": 10.0},
    {"rate": 1e-2, "kind": "ppo", "size": 10, "score": 5.0},
]


def lines(picture: str) -> dict[str, ET.Element]:
    """By what they say under the pointer."""
    found = [p for p in ET.fromstring(picture).iter(f"{SVG}path") if p.get("class") == "trial"]
    return {line.findtext(f"{SVG}title") or "": line for line in found}


def places(line: ET.Element) -> list[tuple[float, float]]:
    numbers = [float(n) for n in re.findall(r"[\d.]+", line.attrib["d"])]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    return [points[0], *points[3::3]]


def test_values_are_where_the_axes_say() -> None:
    drawn = lines(draw_parallel("t", TRIALS, logarithmic={"rate"}))
    first, second, third = (places(line) for line in drawn.values())
    assert next(iter(drawn)) == "rate 1e-4; kind ppo; size 2; score 0"
    assert [x for x, _ in first] == [LEFT + BETWEEN * axis for axis in range(4)]
    rates = sorted([first[0][1], second[0][1], third[0][1]])
    middle = (TOP + BOTTOM) / 2
    assert rates == [TOP, middle, BOTTOM]  # a power of ten apart each
    kinds = {line: points[1][1] for line, points in zip(drawn, map(places, drawn.values()), strict=True)}
    assert {y for said, y in kinds.items() if "ppo" in said} == {BOTTOM}
    assert {y for said, y in kinds.items() if "sac" in said} == {TOP}
    scores = {said: places(line)[-1][1] for said, line in drawn.items()}
    assert sorted(scores.values()) == [TOP, middle, BOTTOM]


@pytest.mark.parametrize(("sought", "best"), [("max", "score 10"), ("min", "score 0")])
def test_the_best_trial_is_drawn_last_and_wide(sought: Any, best: str) -> None:
    drawn = lines(draw_parallel("t", TRIALS, best=sought))
    said, line = list(drawn.items())[-1]
    assert best in said
    assert [other.attrib["stroke-width"] for other in drawn.values()].count(line.attrib["stroke-width"]) == 1
    assert float(line.attrib["stroke-width"]) == max(float(each.attrib["stroke-width"]) for each in drawn.values())


def test_one_trial_and_odd_names_can_be_drawn() -> None:
    picture = draw_parallel("<&>", [{"a.very.long.path.of.a.setting<": {"kind": "x"}, "n": True, "score": 3.0}])
    (said,) = lines(picture)
    assert said == 'a.very.long.path.of.a.setting< {"kind": "x"}; n true; score 3'


def test_a_logarithmic_axis_of_one_power_has_ticks_between_its_ends_and_long_words_are_cut() -> None:
    trials = [{"rate": 2e-4, "kind": "a word that is very long", "s": 1.0}, {"rate": 9e-4, "kind": "ppo", "s": 2.0}]
    picture = draw_parallel("t", trials, logarithmic={"rate"})
    shown = [text.text for text in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"1e-4", "2e-4", "5e-4", "0.001"} <= set(shown)
    assert "a word that is …" in shown
