"""Releases of language policies under load: the monitor sees what a version says, and the release comes back."""

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loomrl.config import Sampling
from loomrl.config.monitor import STOPPED
from loomrl.inference.chat import Chat
from loomrl.inference.model import save_model
from loomrl.inference.policy import Voice
from loomrl.release.passage import ReleasePhase
from loomrl.serving.deployment.source import OpenFolder, PolicySource
from loomrl.serving.policy import ServedPolicy
from loomrl.serving.speech import Speech
from loomrl.store import open_store
from loomrl.store.endpoints import show_endpoint
from tests.inference.sample_models import tiny_model, tiny_tokenizer
from tests.needs import needs
from tests.serving.monitoring import KEY
from tests.serving.releasing import Load, Opening, calling, fast, released, rollback_s, serving, strangers, ways
from tests.serving.scripted_engine import ScriptedEngine
from tests.serving.test_release_live import BACK

pytestmark = [needs("HAProxy"), pytest.mark.usefixtures("one_thread")]
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
        chat = Chat(tiny_tokenizer())
        engine = ScriptedEngine(chat, sayings(slip, rate if source.version == "new" else 0.0))
        return Speech(Voice(engine, chat, Sampling(max_tokens=60), 1000), version=source.version)

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
