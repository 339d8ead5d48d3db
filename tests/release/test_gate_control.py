from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from loomrl.config.control import Network
from loomrl.config.release import ReleasePlan
from loomrl.config.suite import ControlSuite
from loomrl.control.network import ActorCritic
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, seen
from loomrl.errors import ConfigError
from loomrl.experiments.gate.judge import judge_version
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.experiments.release import ReleaseRequest, begin
from loomrl.release.gate.check import improvement_check
from loomrl.release.gate.proof import Bounded
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, set_endpoint, show_endpoint
from loomrl.store.releases import list_releases
from loomrl.store.verdicts import VERDICTS, StoredVerdict, VerdictOutcome
from tests.release.test_gate_language import failed

HERE = "tests.release.test_gate_control"
HIGH = np.array([4.8, np.inf, 0.41887903, np.inf], np.float32)
GOOD = (0.1, 0.2, 1.0, 0.6)
"""Weights of position, speed, angle and turning, by which a linear policy balances CartPole."""
HACK = 2.05
"""A position at which a pole can be balanced for as high a return, and which the suite forbids."""


def export(
    folder: Path, weights: tuple[float, ...], *, twist: float = 1.0, target: float = 0.0, memory: Any = None
) -> str:
    """A policy that pushes right where the weighted sum of the observation is positive, of positions from `target`."""
    observed, acted = spaces.Box(-HIGH, HIGH), spaces.Discrete(2)
    network = Network(hidden=(1,), memory=memory)
    net = ActorCritic(seen(observed), acts(acted), network, normalize=False)
    linear = [module for module in net.modules() if isinstance(module, torch.nn.Linear)]
    with torch.no_grad():
        for module in linear:
            module.weight.zero_()
            module.bias.zero_()
            if module.in_features >= 4:
                module.weight[0, :4] = torch.tensor(weights) * 0.1 * twist
                module.bias.fill_(-weights[0] * target * 0.1 * twist)
            elif module.out_features == 2:
                module.weight[:, 0] = torch.tensor([-1.0, 1.0])
            else:
                module.weight.fill_(1.0)
    ControlPolicy(net, observed, acted, network).save(folder)
    return str(folder)


def suite(**changes: Any) -> ControlSuite:
    found = resolve_suite("control_tiny", [f"{name.replace('__', '.')}={value}" for name, value in changes.items()])
    assert isinstance(found, ControlSuite)
    return found


@pytest.fixture
def good(tmp_path: Path) -> str:
    return export(tmp_path / "good", GOOD)


def balance(observations: NDArray[np.float32]) -> NDArray[np.int64]:
    return (observations @ np.array(GOOD) > 0).astype(np.int64)


def make_outside(**settings: Any) -> Any:
    """Chooses an action that does not exist, in one state of many."""
    return lambda observations: np.where(np.abs(observations[:, 2]) > 0.03, 2, balance(observations))


def make_drifting(**settings: Any) -> Any:
    """Balances, and runs to the right."""
    return lambda observations: (observations @ np.array(GOOD) + 0.22 > 0).astype(np.int64)


def make_jittery(**settings: Any) -> Any:
    """Lets the last digits of what it sees decide, until the pole has nearly fallen."""

    def act(observations: NDArray[np.float32]) -> NDArray[np.int64]:
        digits = np.modf(np.abs(observations[:, 0]) * 1e5)[0] > 0.5
        return np.where(np.abs(observations[:, 2]) < 0.15, digits, balance(observations)).astype(np.int64)

    return act


def test_good_policy_passes_with_fresh_seeds(good: str, db: LoomDB) -> None:
    verdicts = [judge_version(good, good, suite(), db) for _ in range(2)]
    assert [each.outcome for each in verdicts] == [VerdictOutcome.ALLOWED] * 2, list(map(reasons, verdicts))


def test_policy_with_a_memory_is_judged_beside_one_without(good: str, tmp_path: Path, db: LoomDB) -> None:
    recalling = export(tmp_path / "recalling", GOOD, memory={"kind": "gru", "size": 3})
    for one, other in ((recalling, good), (good, recalling)):
        verdict = judge_version(one, other, suite(), db)
        assert verdict.outcome is VerdictOutcome.ALLOWED, reasons(verdict)


@pytest.mark.slow
def test_good_policy_of_control_passes_in_200_of_200_runs(good: str, db: LoomDB) -> None:
    assert {judge_version(good, good, suite(), db).outcome for _ in range(200)} == {VerdictOutcome.ALLOWED}


def test_exported_policy_that_always_falls_is_refused(good: str, tmp_path: Path, db: LoomDB) -> None:
    bad = export(tmp_path / "bad", (0.0, 0.0, -1.0, 0.0))
    verdict = judge_version(bad, good, suite(), db)
    assert verdict.outcome is VerdictOutcome.REFUSED
    assert {"benchmark CartPole-v1", "regression", "improvement"} <= set(failed(verdict))


@pytest.mark.parametrize(
    ("flaw", "check"),
    [("outside", "safety.bounds"), ("drifting", "safety.forbidden"), ("jittery", "safety.smoothness")],
)
def test_planted_flaw_of_control_is_refused_with_its_evidence(flaw: str, check: str, good: str, db: LoomDB) -> None:
    verdict = judge_version(f"{HERE}:make_{flaw}", good, suite(), db)
    assert verdict.outcome is VerdictOutcome.REFUSED, reasons(verdict)
    assert check in failed(verdict), reasons(verdict)


def test_policy_that_hacks_its_benchmark_is_refused_by_the_states_that_it_enters(
    good: str, tmp_path: Path, db: LoomDB
) -> None:
    verdict = judge_version(export(tmp_path / "hack", GOOD, target=HACK), good, suite(), db)
    assert verdict.outcome is VerdictOutcome.REFUSED
    assert failed(verdict) == ["safety.forbidden"], "its return alone would have let it pass"
    checks = {check["name"]: check for check in verdict.report["checks"]}
    assert checks["safety.forbidden"]["examples"][0]["answer"]


def test_changed_folder_is_another_policy(good: str, tmp_path: Path, db: LoomDB) -> None:
    first = judge_version(good, None, suite(benchmarks__0__episodes=32), db)
    export(tmp_path / "good", (0.1, 0.2, 1.0, 0.7))
    second = judge_version(good, None, suite(), db)
    assert first.policy == second.policy
    assert first.fingerprint != second.fingerprint


def test_policy_of_the_other_kind_is_refused_by_name(good: str, db: LoomDB) -> None:
    with pytest.raises(ConfigError, match="is a control policy"):
        judge_version(good, None, resolve_suite("language_tiny"), db)


def reasons(verdict: StoredVerdict) -> list[str]:
    return [f"{check['name']}: {check['state']}: {check['reason']}" for check in verdict.report["checks"]]


# -- a release goes through the gate: what is refused there gets no traffic --------------------------------------------


def asked(version: str) -> ReleaseRequest:
    return ReleaseRequest(
        version=version, endpoint="cart", plan=ReleasePlan(), suite="control_tiny", no_gate=None, who="ann", why=""
    )


def test_version_that_hacks_its_benchmark_gets_no_traffic_and_an_allowed_one_is_released_by_its_verdict(
    tmp_path: Path,
) -> None:
    stable = export(tmp_path / "stable", GOOD)
    new = export(tmp_path / "new", (0.1, 0.2, 1.0, 0.7))
    bad = export(tmp_path / "bad", GOOD, target=HACK)
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        before = set_endpoint(db, "cart", [Arm(name="stable", policy=stable)], at=1.0)
        with pytest.raises(ConfigError, match=r"refused: safety\.forbidden\. `loomrl gate show"):
            begin(asked(bad), db)
        assert show_endpoint(db, "cart") == before
        assert list_releases(db) == []
        begun = begin(asked(new), db)
        verdicts = VERDICTS.latest(db)
        assert [each.outcome for each in verdicts] == [VerdictOutcome.ALLOWED, VerdictOutcome.REFUSED]
        assert begun.verdict.reasons == (f"verdict {verdicts[0].id}",)
        assert [(arm.policy, arm.share) for arm in show_endpoint(db, "cart").arms] == [(stable, 1.0), (new, 0.0)]


@pytest.mark.parametrize(
    ("low", "least", "state"),
    [
        (0.01, None, "passed"),
        (-0.01, None, "passed"),
        (0.01, 0.0, "passed"),
        (0.0, 0.0, "failed"),
        (0.04, 0.05, "failed"),
    ],
)
def test_a_suite_may_ask_for_an_improvement_that_is_proved(low: float, least: float | None, state: str) -> None:
    check = improvement_check(Bounded(mean=0.06, low=low, high=0.1, count=100), least=least)
    assert check.state == state
    assert ("not proved better" in check.reason) == (state == "failed")
