"""The attacker against the corpus: `LOOMRL_ATTACK_S` are the seconds for each environment, ten minutes by default."""

import os

import pytest

from loomrl.gym.attack.run import attack_environment
from tests.gym.planted.index import ALL, Planted
from tests.needs import needs

SECONDS = float(os.environ.get("LOOMRL_ATTACK_S", "600"))
RECALL = 0.8
FALSE_ALARMS = 2
found: dict[str, bool] = {}


@pytest.mark.slow
@pytest.mark.timeout(3 * SECONDS + 60)
@pytest.mark.parametrize(
    "each", [pytest.param(each, id=each.id, marks=needs("bubblewrap") if each.sandboxed else ()) for each in ALL]
)
def test_an_environment_of_the_corpus_is_attacked(each: Planted) -> None:
    report = attack_environment(each.entry_point, each.settings, seconds=SECONDS)
    print(each.id, "planted" if each.is_planted else "sound", report, flush=True)
    found[each.id] = not report.passed


@pytest.mark.slow
def test_most_exploits_are_found_and_hardly_an_alarm_is_false() -> None:
    planted = [found[each.id] for each in ALL if each.is_planted and each.id in found]
    alarms = [each.id for each in ALL if not each.is_planted and found.get(each.id)]
    print(f"{sum(planted)} of {len(planted)} exploits found; false alarms: {alarms}")
    assert sum(planted) >= RECALL * len(planted)
    assert len(alarms) <= FALSE_ALARMS
