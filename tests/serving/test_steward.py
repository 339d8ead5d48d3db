"""The steward keeps one application for each engine that an endpoint's arms need."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from loomrl.config import ServingExperiment
from loomrl.serving.deployment import station
from loomrl.serving.deployment.source import SHARED
from loomrl.serving.deployment.station import Station, Steward
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, Role, set_endpoint
from tests.inference.sample_models import additions, tiny_model
from tests.serving.service_support import record, start


class Applications:
    """Applications by name, with their engines."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.asked = 0

    def change(self, _: Station, missing: Mapping[str, str], over: frozenset[str]) -> frozenset[str]:
        """Ray Serve's part."""
        self.asked += 1
        self.there = {name: engine for name, engine in (self.there | missing).items() if name not in over}
        return frozenset(self.there)


def test_adapters_of_one_base_need_one_application_and_nothing_ends_while_an_arm_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(station, "SPARE_S", -1.0)
    url = f"sqlite:///{tmp_path}/loom.db"
    tree = {"name": "x", "store_url": url, "arms": [{"what": "a/1"}]}
    applications = Applications()
    with open_store(url) as db:
        for number, run in enumerate("ab", start=1):
            record(db, start(db, tmp_path, run), number, run=run, additions=additions(tiny_model(), number))
        record(db, start(db, tmp_path, "whole"), 3, run="whole")
        steward = Steward(Station(experiment=ServingExperiment.parse(tree), token="t"))

        def engines(*policies: str) -> list[str]:
            arms = [Arm(name="stable", policy=policies[0])]
            arms += [Arm(name=policy, policy=policy, share=0.0, role=Role.CANARY) for policy in policies[1:]]
            set_endpoint(db, "policy", arms, at=1.0)
            steward.look(applications.change)
            return sorted(engine.partition(":")[0] + ":" * (":" in engine) for engine in applications.there.values())

        assert engines("a/1", "b/2", "whole/3") == [SHARED, "whole/3"]
        assert engines("b/2", "nowhere/1") == [SHARED, "whole/3"]
        assert "An arm of 'policy' cannot be served" in caplog.text
        assert engines("b/2") == [SHARED]
        assert engines("whole/3") == ["whole/3"]


@pytest.mark.parametrize(("ask_s", "asked"), [(1000.0, 3), (0.0, 5)])
def test_serve_is_asked_seldom_while_nothing_changes_and_what_vanished_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask_s: float, asked: int
) -> None:
    monkeypatch.setattr(station, "ASK_S", ask_s)
    url = f"sqlite:///{tmp_path}/loom.db"
    applications = Applications()
    with open_store(url) as db:
        record(db, start(db, tmp_path, "whole"), 3, run="whole")
        set_endpoint(db, "policy", [Arm(name="stable", policy="whole/3")], at=1.0)
        tree = {"name": "x", "store_url": url, "arms": [{"what": "whole/3"}]}
        steward = Steward(Station(experiment=ServingExperiment.parse(tree), token="t"))
        steward.look(applications.change)
        steward.look(applications.change)
        assert [*applications.there.values()] == ["whole/3"]
        applications.there.clear()
        steward.look(applications.change)
        assert [*applications.there.values()] == ([] if ask_s else ["whole/3"])
        assert applications.asked == asked
