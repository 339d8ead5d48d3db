"""Held-out tasks: apart from those of training, and spread evenly however many there are."""

from collections import Counter

import pytest

from loomrl.config import EnvironmentConfig, EvaluationConfig
from loomrl.gym.cast import gather
from loomrl.gym.catalogue import find
from loomrl.gym.curriculum import HELD_OUT_SEEDS
from loomrl.gym.held_out import held_out


@pytest.mark.parametrize("levels", [(1,), (1, 5, 10), tuple(range(1, 11))])
@pytest.mark.parametrize("families", [("algebra.*",), ("calculus.*",), ("arithmetic.s*",)])
def test_every_cell_is_tried_equally_often_and_a_part_of_them_touches_all_levels_and_families(families, levels):
    cast = gather([EnvironmentConfig(id="Math", families=families)], None, lambda id: (find(id).id, ""))
    cells = len(cast.families) * len(levels)
    draws = held_out(cast, EvaluationConfig(episodes=2 * cells, levels=levels))
    assert set(Counter((draw.family.key, draw.level) for draw in draws).values()) == {2}
    few = draws[: max(len(cast.families), len(levels))]
    assert {draw.level for draw in few} == set(levels)
    assert {draw.family.key for draw in few} == {family.key for family in cast.families}
    assert all(draw.seed in HELD_OUT_SEEDS for draw in draws)
    assert len({draw.seed for draw in draws}) == len(draws)
