"""Secrets in thousands of trajectories, on every way that these take: none is left anywhere."""

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from loomrl.bus import client
from loomrl.bus.agent import open_agent_hub
from loomrl.bus.client import Publisher
from loomrl.bus.outbox import Outbox
from loomrl.bus.sink import Sink
from loomrl.bus.stored import StoredBus
from loomrl.config import HubConfig
from loomrl.errors import StoreError
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_endpoint_hub
from loomrl.parquet import from_parquet
from loomrl.safety.placeholder import MARK
from loomrl.safety.redaction import PatternRedactor
from loomrl.serving.durable import open_recorder
from loomrl.serving.feedback.intake import AnswerRef, EndpointHubs, FeedbackEntry, FeedbackIntake
from loomrl.serving.recording import commit
from loomrl.serving.recording.naming import Naming
from loomrl.serving.request import Caller
from loomrl.serving.retention.sweep import DAY_S, Sweeper, SweepTerms
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.types import Trajectory
from tests.serving.planting import Echo, Plant, Search, asked, foreign, further, plants, texts_in
from tests.serving.scripted import Desk, decoded, reply

TOGETHER = 64
SECRET = b"of the service"


async def record(url: str, every: Sequence[Plant]) -> None:
    """Sessions of three calls each, which their callers end."""
    recorder = open_recorder(url, secret=SECRET)

    async def session(number: int, plant: Plant) -> None:
        desk, name = Desk(recorder, Echo(Random(number), plant=plant)), f"s{number}"
        first = await desk.call(name, asked(plant))
        second = await desk.call(name, further(first.ask, reply(first), "and the others?"))
        await desk.call(name, further(second.ask, reply(second), plant.at("user", "thanks")))
        await recorder.complete(name, outcome={"note": plant.at("outcome", "good")})

    for start in range(0, len(every), TOGETHER):
        await asyncio.gather(*(session(start + at, one) for at, one in enumerate(every[start : start + TOGETHER])))
    await recorder.close()


def judge(db: LoomDB, url: str, every: Sequence[Plant]) -> None:
    """Feedback with a comment."""
    intake = FeedbackIntake(db, EndpointHubs(url, ["end"]), naming=Naming(db, PatternRedactor(), secret=SECRET))
    for number, plant in enumerate(every):
        told = FeedbackEntry(
            place=AnswerRef(session=f"s{number}"),
            kind="thumb",
            source="human",
            value=1.0,
            comment=plant.at("comment", "well done"),
            data={"reason": plant.at("comment", "")},
        )
        intake.take(told, caller=Caller(key="key"))
    intake.close()


def innocent(every: Collection[Plant]) -> set[str]:
    """Secrets that are words, which others say without a secret: the name of a network, say."""
    words = {secret for one in every for secret in one.secrets if secret.isalpha()}
    return {word for word in words if any(word in one.text and word not in one.secrets for one in every)}


def trajectories(hub: Hub) -> list[Trajectory]:
    """All of a hub."""
    found, after = [], 0
    while page := hub.read(after, limit=1000):
        found += [one for _, one in page]
        after = page[-1][0]
    return found


def read(every: Sequence[Trajectory]) -> Iterator[bytes]:
    """What trajectories say, in words and in ids."""
    for one in every:
        yield str(one).encode("utf-8", "replace")
        turns = [turn for thread in one.sequences for turn in thread]
        yield from (decoded(turn.tokens.ids_T).encode("utf-8", "replace") for turn in turns if turn.tokens is not None)


def files(folder: Path) -> Iterator[bytes]:
    """All bytes of all files: databases and their logs, spools, archives."""
    return (file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_no_planted_secret_is_left_anywhere(
    count: int, sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(client, "PAUSE_S", 1e6)
    every = plants(count)
    touched = {f"s{number}": one for number, one in enumerate(every) if one.places}
    search = Search({secret for one in touched.values() for secret in one.secrets} - innocent(touched.values()))

    await record(sqlite_url, every)
    with open_store(sqlite_url) as db, StoredBus(open_store(sqlite_url)) as bus:
        set_endpoint(db, "end", [Arm(name="stable", policy="v", share=1.0)], at=time.time(), reason="a test")
        judge(db, sqlite_url, every)
        search.look(texts_in(db))
        with open_endpoint_hub(sqlite_url, "end", HubConfig()) as hub:
            Sweeper(db, hub, "end", terms=SweepTerms()).sweep_sessions(now=time.time())
            served = trajectories(hub)
            search.look(read(served))
            outbox = Outbox(db, sqlite_url, bus)
            while outbox.step():
                pass
            outbox.close()
            search.look(given.payload for given in bus.browse("RL_TRAJECTORIES", most=count))
            artifacts = tmp_path / "artifacts"
            aged = Sweeper(db, hub, "end", artifact_url=str(artifacts)).sweep_trajectories(now=time.time() + 40 * DAY_S)
            assert aged.archived == count
            search.look(str(from_parquet(file.read_bytes())).encode() for file in artifacts.rglob("bytes"))

        with Publisher("nats://127.0.0.1:9", spool=tmp_path / "spool") as away:
            published = [away.publish(foreign(one)) for one in every]
        assert not any(published)
        search.look(files(tmp_path / "spool"))
        with Publisher(sqlite_url, spool=tmp_path / "spool") as publisher:
            assert publisher.flush() == count
        sink = Sink(db, sqlite_url, bus)
        while sink.step(wait_s=0).total:
            pass
        sink.close()
        with open_agent_hub(sqlite_url, "zero", HubConfig()) as hub:
            others = trajectories(hub)
            assert len(others) == count
            search.look(read(others))

    monkeypatch.setattr(commit, "keep_calls", _fails)
    await _ignoring(record(sqlite_url.replace("loom.db", "broken.db"), every[:TOGETHER]))
    search.look([caplog.text.encode("utf-8", "replace")])
    search.look(files(tmp_path))
    assert search.left == set()

    assert len(served) == count
    for one in served:
        plant = touched.get(one.id)
        tokens = [turn.tokens is not None for turn in one.turns]
        if plant is None:
            assert all(tokens), "a trajectory without secrets keeps its ids"
        elif plant.places - {"outcome", "comment"}:
            assert not any(tokens), "all its turns come after something redacted"
            assert MARK.search(str(one.sequences)) is not None, "the text is still there to learn from"


def _fails(db: LoomDB, new: Sequence[object]) -> None:
    raise StoreError(f"could not write {new[0]}")


async def _ignoring(work: object) -> None:
    with pytest.raises(Exception, match="database does not answer"):
        await work  # type: ignore[misc]


def test_a_secret_that_is_left_is_found() -> None:
    """The search itself: as it is, in JSON, in a `repr`, at any place."""
    secrets = ['a"quoted secret', "s3cret-of-mine", "not there at all"]
    data = [b"x" * 13 + b's3cret-of-mine"', b'{"a": "a\\"quoted secret"}', b"s3cret-of-min"]
    search = Search(secrets)
    search.look(data)
    assert search.left == {'a"quoted secret', "s3cret-of-mine"}
