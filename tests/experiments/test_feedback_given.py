"""Feedback is given and listed on the command line and by the client; people are forgotten; archives are read."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from loomrl.config import HubConfig
from loomrl.errors import LoomError
from loomrl.feedback import client
from loomrl.feedback.client import FeedbackClient, FeedbackError
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.retention.sweep import Sweeper
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.sessions import list_opt_outs
from tests.command_line import typed, typed_json
from tests.serving.feedback_support import DAY_S, Served

pytestmark = pytest.mark.system


@pytest.fixture
async def served(sqlite_url: str) -> AsyncIterator[Served]:
    async with Served(sqlite_url) as opened:
        set_endpoint(opened.db, "m", [Arm(name="stable", policy="v", share=1.0)], at=0.0, reason="a test")
        yield opened


async def test_the_command_gives_and_lists_feedback(served: Served) -> None:
    at = ("--store", served.store_url)
    call = await served.chat("s")
    other = await served.chat("s", "again")
    told = typed_json("feedback", "give", "s", "--thumb", "down", "--call", call, "--comment", "no", *at)
    assert (told["kind"], told["new"]) == ("thumb", 1)
    assert typed_json("feedback", "give", "s", "--stars", "4", "--id", "x", *at)["new"] == 1
    assert typed_json("feedback", "give", "s", "--stars", "4", "--id", "x", *at)["new"] == 0
    typed_json("feedback", "give", "s", "--success", "1", "--reward", "3", *at)
    typed_json("feedback", "give", "s", "--call", call, "--over", other, *at)
    typed_json("feedback", "give", "s", "--abandoned", *at)
    typed_json("feedback", "give", "s", "--correction", "mail ada@example.org", *at)
    found = typed_json("feedback", "list", "--trajectory", "s", *at)["feedback"]
    kinds = ["correction", "abandoned", "choice", "choice", "outcome", "stars", "thumb"]
    assert [one["kind"] for one in found] == kinds
    assert "example.org" not in json.dumps(found)
    assert typed_json("feedback", "list", "--trajectory", "nobody", *at)["feedback"] == []
    assert "correction" in typed("feedback", "list", *at)
    for words, said in (
        ("give nobody --thumb up", "session: 'nobody' is unknown here"),
        ("give s --thumb sideways", "it must be 'up' or 'down'"),
        ("give s", "nothing is said"),
    ):
        with pytest.raises(LoomError, match=said):
            typed("feedback", *words.split(), *at)


async def test_the_client_gives_feedback_once_and_says_what_was_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = await served.chat("s")

    def talk() -> None:
        with FeedbackClient(served.url, key=served.mine) as feedback:
            assert feedback.give(call=call, thumb="up")["trajectory"] == "s"
            assert feedback.give("s", thumb="up")["new"] == 1, "the same again is said again"
            assert feedback.give("s", stars=3, id="x")["new"] == 1
            assert feedback.give("s", stars=3, id="x")["new"] == 0
            with pytest.raises(FeedbackError, match="Did you mean 'thumb'") as refused:
                feedback.give("s", thum="up")
            assert refused.value.status == 400
            with pytest.raises(FeedbackError, match="unknown here"):
                feedback.give("nobody", thumb="up")
        with FeedbackClient(served.url) as stranger, pytest.raises(FeedbackError, match="key"):
            stranger.give("s", thumb="up")
        monkeypatch.setattr(client, "time", SimpleNamespace(sleep=lambda seconds: None))
        with FeedbackClient("http://127.0.0.1:9") as nobody, pytest.raises(FeedbackError, match="Is the gateway up"):
            nobody.give("s", thumb="up")

    await asyncio.to_thread(talk)
    assert [one.kind for one in served.stored()] == ["thumb", "thumb", "stars"]


def test_the_client_tries_again_with_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, pauses = [], []
    outcomes = [httpx.ConnectError("no"), httpx.Response(503, headers={"retry-after": "2"}), httpx.Response(200)]

    def answer(request: httpx.Request) -> httpx.Response:
        ids.append(json.loads(request.content)["id"])
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome if outcome.status_code != 200 else httpx.Response(200, json={"new": 1})

    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=pauses.append))  # Tune's thread sleeps too
    with FeedbackClient("http://test") as feedback:
        feedback._http = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
        assert feedback.give("s", thumb="up") == {"new": 1}
        outcomes.append(httpx.Response(500, text="oops"))
        with pytest.raises(FeedbackError, match="HTTP 500: oops") as refused:
            feedback.give("s", thumb="up")
    assert refused.value.status == 500
    assert len(set(ids[:3])) == 1
    assert pauses == [0.1, 2.0]


async def test_a_person_is_forgotten_and_archives_are_read(served: Served, tmp_path: Path) -> None:
    await served.chat("hers", "her words", user="ada")
    await served.chat("old", "old words")
    served.archive()
    with open_endpoint_hub(served.store_url, "m", HubConfig()) as hub:
        sweeper = Sweeper(served.db, hub, "m", artifact_url=str(tmp_path / "artifacts"))
        sweeper.sweep_trajectories(now=served.now() + 40 * DAY_S)
    at = ("--endpoint", "m", "--store", served.store_url)

    def read(*words: str) -> dict[str, str]:
        found = typed_json("data", "archives", "--read", *words, *at)["trajectories"]
        return {one["id"]: one["threads"][0][0]["content"] for one in found}

    assert read().keys() == {"hers", "old"}
    assert read()["old"] == "old words"
    (file,) = typed_json("data", "archives", *at)["files"]
    assert (file["state"], file["count"]) == ("kept", 2)
    done = typed_json("people", "forget", "ada", "--opt-out", *at)
    assert (done["sessions"], done["archived"]) == (1, 1)
    (out,) = list_opt_outs(served.db, "m")
    assert out.person == done["person"]
    assert read("--since", "2020-01-01") == {"old": "old words"}
    assert read("--until", "2020-01-01") == {}
    assert "old words" in typed("data", "archives", "--read", *at)
    assert "words" not in typed("data", "archives", *at) + typed("people", "forget", "bob", *at)
    with pytest.raises(LoomError, match="Did you mean 'm'"):
        typed("people", "forget", "ada", "--endpoint", "mm", "--store", served.store_url)
