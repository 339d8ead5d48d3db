"""Shares: by weight, never below a minimum, and all of the whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.config import EnvironmentConfig
from loomrl.gym.catalogue import find
from loomrl.gym.curriculum import Stake, shares
from loomrl.gym.task_mixture import gather

STAKES = st.dictionaries(
    st.text(min_size=1, max_size=3), st.builds(Stake, st.floats(0.05, 20), st.floats(0, 0.15)), min_size=1, max_size=6
)


@given(STAKES)
def test_shares_are_the_whole_and_none_is_below_its_minimum(stakes):
    parts = shares(stakes)
    assert sum(parts.values()) == pytest.approx(1.0)
    assert all(parts[name] >= stake.min_share - 1e-9 for name, stake in stakes.items())


def test_without_minimums_shares_are_the_weights():
    assert shares({"a": Stake(1.0), "b": Stake(3.0)}) == {"a": 0.25, "b": 0.75}


def test_what_a_minimum_takes_comes_from_the_others_by_weight():
    assert shares({"a": Stake(1.0, 0.5), "b": Stake(6.0), "c": Stake(3.0)}) == pytest.approx(
        {"a": 0.5, "b": 1 / 3, "c": 1 / 6}
    )


def test_tasks_are_drawn_by_weights_and_minimum_shares():
    configs = [EnvironmentConfig(id="Math", weight=19), EnvironmentConfig(id="ReasoningGym", min_share=0.25)]
    families = gather(configs, None, lambda id: (find(id).id, "")).families
    assert {family.environment: family.share for family in families} == {"Math": 0.75, "ReasoningGym": 0.25}
