"""A pretrained chat model learns from rewards alone, in minutes on two cores."""

from pathlib import Path

import pytest

from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import train
from tests.algorithms.language_support import QUIET
from tests.experiments.runs import places


@pytest.mark.slow
@pytest.mark.timeout(1800)
@QUIET
def test_smollm2_learns_to_name_the_largest_number(tmp_path: Path) -> None:
    result = train(resolve(["language/smol_numbers", "seed=3"]).override(places(tmp_path)), run="r")
    print(f"{result.seconds} s, {dict(result.before)}, {dict(result.after)}")
    assert 0.1 <= result.before["sampled"] <= 0.4
    assert result.after["sampled"] >= result.before["sampled"] + 0.15
