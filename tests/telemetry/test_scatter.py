"""Pictures of fronts: opened as what they are, and every mark where it belongs."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike

from loomrl.evaluation.front import FrontReport, Played, judge_front
from loomrl.telemetry.scatter import COLOURS, draw_fronts, mixed

SVG = "{http://www.w3.org/2000/svg}"


def report(
    returns: ArrayLike,
    *,
    objectives: Sequence[str] = ("a", "b"),
    reference: Sequence[float] | None = None,
    name: str = "p",
) -> FrontReport:
    """Of preferences in order, from all weight on the last objective to all on the first."""
    returns_PEH = np.asarray(returns, np.float64)
    first = np.linspace(0, 1, len(returns_PEH))
    rest = [(1 - first) / (len(objectives) - 1)] * (len(objectives) - 1)
    preferences = np.stack([first, *rest], axis=1).astype(np.float32)
    played = Played(preferences, returns_PEH, np.ones(returns_PEH.shape[:2], np.int64))
    return judge_front(name, played, objectives=objectives, reference=reference, confidence=0.95)


def opened(*reports: FrontReport) -> ET.Element:
    return ET.fromstring(draw_fronts(reports))


def spots(picture: ET.Element) -> list[ET.Element]:
    """Points with what they say under the pointer, by their place from left to right."""
    found = [circle for circle in picture.iter(f"{SVG}circle") if circle.find(f"{SVG}title") is not None]
    return sorted(found, key=lambda circle: float(circle.attrib["cx"]))


def said(circle: ET.Element) -> str:
    return circle.findtext(f"{SVG}title") or ""


def drawn(picture: ET.Element, kind: str) -> list[str]:
    return [path.attrib["d"] for path in picture.iter(f"{SVG}path") if path.attrib.get("class") == kind]


def texts(picture: ET.Element) -> list[str]:
    return ["".join(text.itertext()) for text in picture.iter(f"{SVG}text")]


def test_points_are_where_their_returns_are_and_say_who_leads_there() -> None:
    picture = opened(report([[[0, 4]], [[0, 4]], [[2, 3]], [[1, 1]], [[4, 0]]], reference=(0, 0)))
    first, bad, middle, last = spots(picture)
    assert said(first) == "a 0; b 4; preference 0.00 1.00 to 0.25 0.75, 2 of them"
    across = [float(spot.attrib["cx"]) for spot in (first, bad, middle, last)]
    one = across[1] - across[0]
    assert np.diff(across) == pytest.approx([one, one, 2 * one], abs=0.2)
    upright = [float(spot.attrib["cy"]) for spot in (last, bad, middle, first)]
    assert upright == sorted(upright, reverse=True)
    assert bad.attrib["fill"] == "none"
    assert middle.attrib["fill"] == mixed([0.5, 0.5])
    assert "not on the front" in texts(picture)


def test_the_front_of_two_is_stairs_and_hypervolume_is_what_lies_below() -> None:
    picture = opened(report([[[1, 3]], [[3, 1]]], reference=(0, 0)))
    (stairs,), (area,), (cross,) = (drawn(picture, kind) for kind in ("stairs", "area", "reference"))
    assert (stairs.count("V"), stairs.count("H")) == (1, 1)
    begin = [float(number) for number in area[1 : area.index("V")].split()]
    assert [number - 5 for number in begin] == [float(number) for number in cross[1 : cross.index("l")].split()]
    assert "hypervolume 5 from (0, 0), 2 points on the front, expected utility 3, sparsity 8" in texts(picture)


def test_intervals_are_bars_where_there_are_any() -> None:
    assert drawn(opened(report([[[1, 3]], [[3, 1]]])), "bar") == []
    picture = opened(report([[[1, 3], [2, 3]], [[4, 1], [4, 2]]]))
    assert [("H" in bar, "V" in bar) for bar in drawn(picture, "bar")] == [(True, False), (False, True)]
    assert "bars: 95% confidence" in texts(picture)


def test_a_reference_far_away_is_on_the_edge_and_says_so() -> None:
    near = opened(report([[[0, 0]], [[1, -1]]], reference=(-1, -2)))
    far = opened(report([[[0, 0]], [[1, -1]]], reference=(-1, -200)))
    assert "reference" in texts(near)
    assert "reference (−1, −200), farther out" in texts(far)
    assert "−200" not in texts(far)


def test_of_three_objectives_every_two_have_a_panel() -> None:
    picture = opened(report([[[10, 0, 0]], [[0, 5, 0]], [[0, 0, 7]]], objectives=("x", "y", "z")))
    assert len(spots(picture)) == 3 * 3
    assert drawn(picture, "stairs") == []
    assert [texts(picture).count(name) for name in "xyz"] == [3, 3, 3]  # two panels each, and the colours


def test_policies_are_below_each_other_on_the_same_axes() -> None:
    picture = opened(report([[[0, 2]], [[4, 0]]], name="fair"), report([[[0, 4]], [[8, 0]]], name="good"))
    assert {"good", "fair"} <= set(texts(picture))
    across = {said(spot).split(";")[0]: float(spot.attrib["cx"]) for spot in spots(picture)}
    assert across["a 4"] == pytest.approx((across["a 0"] + across["a 8"]) / 2, abs=0.1)


def test_one_point_and_equal_returns_are_drawn() -> None:
    assert len(spots(opened(report([[[0, 0]], [[0, 0]]])))) == 1
    assert len(spots(opened(report([[[7, -3]]], reference=(7, -3))))) == 1


def test_names_are_text_and_nothing_else() -> None:
    hostile = "</text><script>alert(1)</script>&\"'"
    picture = opened(report([[[1, 3]], [[3, 1]]], objectives=(hostile, "b"), name=hostile))
    assert not list(picture.iter(f"{SVG}script"))
    assert texts(picture).count(hostile) == 3  # title, axis, colour


def test_colours_are_the_objectives_own_at_the_corners() -> None:
    assert [mixed(row) for row in np.eye(3).tolist()] == list(COLOURS[:3])
    assert len(mixed(np.full(12, 1 / 12).tolist())) == 7
