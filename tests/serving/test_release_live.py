"""Releases on a running endpoint under load: a good version gets all of the traffic, a faulty one comes back."""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from loomrl.config import Sampling
from loomrl.config.monitor import STOPPED
from loomrl.config.release import ReleasePlan
from loomrl.errors import ConfigError
from loomrl.experiments.release import ReleaseRequest, begin
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.model import save_model
from loomrl.inference.policy import Voice
from loomrl.release.passage import ReleasePhase
from loomrl.serving.acting import ControlServedPolicy
from loomrl.serving.deployment.source import OpenFolder, PolicySource
from loomrl.serving.policy import ServedPolicy
from loomrl.serving.speech import LanguageServedPolicy
from loomrl.store import open_store
from loomrl.store.endpoints import ENDPOINTS, show_endpoint
from loomrl.store.releases import list_releases
from tests.inference.sample_models import tiny_model, tiny_tokenizer
from tests.needs import needs
from tests.release.test_gate_control import GOOD, HACK, export
from tests.serving.control_support import control_policy
from tests.serving.monitoring import KEY
from tests.serving.releasing import (
    Load,
    Manner,
    Mannered,
    Opening,
    calling,
    fast,
    released,
    rollback_s,
    serving,
    strangers,
    ways,
)
from tests.serving.scripted_engine import ScriptedEngine

pytestmark = [needs("HAProxy"), pytest.mark.usefixtures("one_thread")]
Ports = Callable[[], int]
BACK = {("old",), ("new",), ("old", "new"), ("new", "old"), ("old", "new", "old")}
"""Ways of units through a release that came back: nobody came to the new version twice."""


def acting(manners: Mapping[str, Manner]) -> Opening:
    """Opens exported policies, and gives them the faults of these versions."""

    async def opening(source: PolicySource, files: OpenFolder) -> ServedPolicy:
        policy = await asyncio.to_thread(
            ControlServedPolicy.open, files.path, version=files.version, number=files.number
        )
        return Mannered(policy, manners.get(source.version, Manner()))

    return opening


@pytest.mark.parametrize(
    "reward", [None, pytest.param(0.7, marks=pytest.mark.slow)], ids=["without-rewards", "with-rewards"]
)
async def test_good_version_gets_all_of_the_traffic(
    tmp_path: Path, unused_tcp_port_factory: Ports, monkeypatch: pytest.MonkeyPatch, reward: float | None
) -> None:
    manners = {"old": Manner(reward=reward), "new": Manner(reward=reward)}
    for seed, name in enumerate(manners):
        control_policy(seed=seed).save(tmp_path / name)
    async with serving(tmp_path, unused_tcp_port_factory, monkeypatch, acting(manners)) as served:
        load = Load(served.url, manners)
        with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
            async with calling(load):
                end = await released(db, str(tmp_path / "new"), fast())
            assert end.passage.phase is ReleasePhase.DONE, end.passage.reason
            assert {answer.status for answer in load.answers} == {200}
            assert show_endpoint(db, "policy").stable.policy == str(tmp_path / "new")
            found = ways(load, db)
            print(f"{len(load.answers)} answers; {dict(found)}")
            assert found["old", "new"] > 0
            assert found.keys() <= {(), ("old",), ("new",), ("old", "new")}, "nobody goes back while shares rise"
            assert strangers(load, db, "new") == set()


PLANTED = {
    "errors": ({"new": Manner(errors=0.3)}, "error"),
    "outage": ({"new": Manner(errors=1.0)}, ""),
    "few-errors": ({"new": Manner(errors=0.08)}, "error"),
    "latency": ({"old": Manner(takes_s=0.15), "new": Manner(takes_s=0.3)}, "latency_s"),
    "reward": ({"old": Manner(reward=0.7), "new": Manner(reward=0.6)}, "reward"),
    "hacking": ({"old": Manner(success=0.6), "new": Manner(success=0.8, correct=0.6)}, "reward hacking"),
}


@pytest.mark.parametrize(
    "fault",
    [pytest.param(name, marks=[] if name in ("errors", "hacking") else pytest.mark.slow) for name in PLANTED],
)
async def test_faulty_version_comes_back_by_itself(
    tmp_path: Path, unused_tcp_port_factory: Ports, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    manners, said = PLANTED[fault]
    for seed, name in enumerate(("old", "new")):
        control_policy(seed=seed).save(tmp_path / name)
    async with serving(tmp_path, unused_tcp_port_factory, monkeypatch, acting(manners)) as served:
        load = Load(served.url, manners)
        with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
            async with calling(load):
                end = await released(db, str(tmp_path / "new"), fast())
            assert end.passage.phase is ReleasePhase.ROLLED_BACK, end.passage.reason
            assert said in end.passage.reason
            assert {answer.status for answer in load.answers} == {200}, "the stable version answers where it fails"
            found = ways(load, db)
            print(f"rollback_s {rollback_s(load, db):.3f}; {len(load.answers)} answers; {end.passage.reason}; {found}")
            assert rollback_s(load, db) < 2.0
            assert strangers(load, db, "new") == set()
            if not manners["new"].errors:  # else the stable version has answered for it now and then
                assert found.keys() <= {(), *BACK}


@pytest.mark.slow
async def test_version_that_hacks_its_benchmark_never_passes(
    tmp_path: Path, unused_tcp_port_factory: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(tmp_path / "old", GOOD)
    new = export(tmp_path / "new", GOOD, target=HACK)
    asked = ReleaseRequest(
        version=new, endpoint="policy", plan=ReleasePlan(), suite="control_tiny", no_gate=None, who="ann", why=""
    )
    async with serving(tmp_path, unused_tcp_port_factory, monkeypatch, acting({})) as served:
        load = Load(served.url)
        with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
            async with calling(load):
                with pytest.raises(ConfigError, match=r"refused: safety\.forbidden\."):
                    await asyncio.to_thread(begin, asked, db)
            assert list_releases(db) == []
            assert len(ENDPOINTS.latest(db, name="policy")) == 1
            assert {(answer.status, answer.version) for answer in load.answers} == {(200, "old")}


ASK = {"messages": [{"role": "user", "content": "What is the answer?"}], "max_tokens": 60}
FINE, TOXIC, LEAK = "The answer is two.", "You are worthless.", f"It is {KEY}."
SECRETS, BLOCKED = {"check": {"kind": "secrets"}}, {"check": {"kind": "blocked"}}


def sayings(slip: str, rate: float) -> Iterator[str]:
    """Answers without end, of which this share are a slip."""
    rng = random.Random(0)
    return (slip if rng.random() < rate else FINE for _ in itertools.count())


def speaking(slip: str, rate: float) -> Opening:
    """Opens policies whose engines draw the tokens of these answers; only those of the new version slip."""

    async def opening(source: PolicySource, files: OpenFolder) -> ServedPolicy:
        chat = ChatTemplate(tiny_tokenizer())
        engine = ScriptedEngine(chat, sayings(slip, rate if source.version == "new" else 0.0))
        return LanguageServedPolicy(Voice(engine, chat, Sampling(max_tokens=60), 1000), version=source.version)

    return opening


SLIPS = {
    "leak-that-trips": (LEAK, 0.05, SECRETS | {"trip": True}, "the monitor tripped the release"),
    "leak": (LEAK, 0.05, SECRETS, "worse: violation"),
    "toxic-phrases-that-trip": (TOXIC, 0.02, BLOCKED | {"trip": True}, "the monitor tripped the release"),
    "toxic-phrases": (TOXIC, 0.02, BLOCKED, "worse: violation"),
}


@pytest.mark.parametrize(
    "fault",
    ["leak-that-trips", *(pytest.param(name, marks=pytest.mark.slow) for name in SLIPS if name != "leak-that-trips")],
)
async def test_version_that_says_what_it_must_not_comes_back_by_itself(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    slip, rate, rule, said = SLIPS[fault]
    for seed, name in enumerate(("old", "new")):
        save_model(tiny_model(seed=seed), tiny_tokenizer(), tmp_path / name)
    rules = {"rules": [rule]}
    async with serving(tmp_path, unused_tcp_port_factory, monkeypatch, speaking(slip, rate), monitor=rules) as served:
        load = Load(served.url, path="/v1/chat/completions", body=ASK)
        with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
            async with calling(load):
                end = await released(db, str(tmp_path / "new"), fast(units=100))
            assert end.passage.phase is ReleasePhase.ROLLED_BACK, end.passage.reason
            assert said in end.passage.reason
            assert show_endpoint(db, "policy").stable.policy == str(tmp_path / "old")
            texts = [answer.text for answer in load.answers]
            stopped = sum(STOPPED in text for text in texts)
            found = ways(load, db)
            print(f"rollback_s {rollback_s(load, db):.3f}; {len(texts)} answers; {end.passage.reason}; {found}")
            assert stopped > 0
            assert not any(slip in text for text in texts), "nobody heard it"
            assert all(FINE in text or STOPPED in text for text in texts)
            assert rollback_s(load, db) < 2.0
            assert strangers(load, db, "new") == set()
            assert found.keys() <= {(), *BACK}
