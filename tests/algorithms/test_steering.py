"""Weights that adapt to the objective furthest behind, and multipliers of constraints."""

import json
import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.algorithms.moving import FixedPreference, open_moving
from loomrl.config.weave import Weave
from loomrl.control.preference import Always, Leaning, Simplex

SPAN = {"best_G": np.array([1.0, 2.0]), "width_G": np.array([1.0, 4.0])}
ADAPTIVE = {"kind": "adaptive", "momentum": 0.5, "episodes": 2}
CONSTRAINED = {"kind": "constrained", "least": {"right": 0.0}, "rate": 0.5, "damping": 1.0, "ceiling": 2, "episodes": 2}
returns = st.lists(st.tuples(st.floats(-5, 1), st.floats(-5, 2)), max_size=6)


def moving(preference: dict[str, Any]) -> Any:
    return open_moving(Weave(objectives=("left", "right"), preference=preference))


def test_the_preference_moves_towards_who_is_furthest_behind_in_widths_of_the_front() -> None:
    lagging = moving(ADAPTIVE)
    lagging.observe([[0.0, 0.0]], **SPAN)
    assert lagging.weights_G.tolist() == [0.5, 0.5]  # one episode is not enough
    lagging.observe([[1.0, -2.0]], **SPAN)
    np.testing.assert_allclose(lagging.weights_G, 0.5 * np.array([0.5, 0.5]) + 0.5 * np.array([0.4, 0.6]))
    assert lagging.metrics() == {
        "preference/left": pytest.approx(0.45),
        "preference/right": pytest.approx(0.55),
    }


def test_who_has_all_that_is_known_moves_nothing() -> None:
    lagging = moving(ADAPTIVE)
    lagging.observe([[1.0, 2.0]] * 2, **SPAN)
    assert lagging.weights_G.tolist() == [0.5, 0.5]


def test_a_share_of_episodes_has_the_present_preference_and_the_others_are_of_the_region() -> None:
    source = moving(ADAPTIVE | {"share": 0.25}).source(1, 2)
    assert source == Leaning((0.5, 0.5), 0.25, Simplex(2, 1, 2))
    chance = np.random.default_rng(0)
    drawn = np.array([source.draw(chance) for _ in range(2000)])
    others = drawn[drawn[:, 0] != 0.5]
    assert 0.7 < len(others) / 2000 < 0.8
    assert others[:, 0].min() > 0.5


def test_a_multiplier_grows_by_what_is_missing_and_is_damped_by_what_is_missing_now() -> None:
    held = moving(CONSTRAINED)
    held.observe([[1.0, -2.0]] * 2, **SPAN)  # half a width is missing
    assert held.metrics() == {"constraint/right": pytest.approx(0.5 * 0.5 + 0.5)}
    held.observe([[1.0, 0.0]] * 2, **SPAN)  # nothing is: what has grown stays
    assert held.multipliers_G[1] == pytest.approx(0.25)
    held.observe([[1.0, 2.0]] * 2, **SPAN)  # half a width too much
    assert held.multipliers_G[1] == 0.0


def test_what_is_not_held_is_fixed_or_sampled() -> None:
    assert moving(CONSTRAINED).source(1, 3) == Simplex(2, 1, 3)
    assert moving(CONSTRAINED | {"weights": [1, 0]}).source(1, 3) == Always((1.0, 0.0))


@pytest.mark.parametrize("preference", [ADAPTIVE, CONSTRAINED, {"kind": "sampled"}])
@given(rounds=st.lists(returns, min_size=2, max_size=6))
def test_what_goes_on_from_its_state_moves_as_if_it_had_never_stopped(preference: Any, rounds: Any) -> None:
    whole: FixedPreference = moving(preference)
    for some in rounds[:-1]:
        whole.observe(np.reshape(some, (-1, 2)), **SPAN)
    again = moving(preference)
    again.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for each in (whole, again):
        each.observe(np.reshape(rounds[-1], (-1, 2)), **SPAN)
    assert whole.metrics() == again.metrics()
    assert whole.state_dict() == again.state_dict()


def test_a_threshold_out_of_reach_is_named_with_the_best_that_was_reached(caplog: pytest.LogCaptureFixture) -> None:
    held = moving(CONSTRAINED | {"least": {"left": 9.0}})
    with caplog.at_level(logging.WARNING, logger="loomrl.algorithms.moving"):
        for left in (0.25, 0.5, 0.125):
            held.observe([[left, 0.0]] * 2, **SPAN)
        assert not caplog.messages
        held.observe([[0.25, 0.0]] * 2, **SPAN)
        held.observe([[0.25, 0.0]] * 2, **SPAN)
    assert caplog.messages == [
        "objective 'left': least=9 is out of reach: its multiplier is at its ceiling of 2, the best mean of 2 episodes "
        "so far is 0.5, the latest 0.25. Lower the threshold, or train longer."
    ]


def test_a_threshold_that_rounding_alone_misses_is_not_out_of_reach(caplog: pytest.LogCaptureFixture) -> None:
    held = moving(CONSTRAINED | {"least": {"left": 0.7, "right": 1.0}, "rate": 2.0, "ceiling": 1e-9})
    with caplog.at_level(logging.WARNING, logger="loomrl.algorithms.moving"):
        for _ in range(3):
            held.observe([[float(np.float32(0.7)), 0.9]] * 2, **SPAN)
    (message,) = caplog.messages
    assert "'right'" in message
