"""Feedback over HTTP: each kind, once, by whoever owns the session, late, and never more than was meant."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loomrl.config import HubConfig
from loomrl.config.release import ReleasePlan
from loomrl.errors import StoreError
from loomrl.hub.open import open_endpoint_hub
from loomrl.release.controller import ReleaseEvidenceLog
from loomrl.serving.feedback import intake
from loomrl.serving.measure import Measures, metrics_of_feedback
from loomrl.store.endpoints import Arm, Endpoint, Role
from loomrl.store.erasures import begin_erasure, erase
from loomrl.store.events import EVENTS
from loomrl.store.observations import read_observations
from loomrl.store.sessions import SESSIONS, opt_out, people_in, person_hash
from tests.serving.feedback_support import DAY_S, FEEDBACK_PATH, Served
from tests.serving.local_gateway import FixedView
from tests.serving.scripted import Script

pytestmark = pytest.mark.system


@pytest.fixture
async def served(store_url: str) -> AsyncIterator[Served]:
    async with Served(store_url) as opened:
        yield opened


async def test_each_kind_is_stored_as_it_is_said(served: Served) -> None:
    first, second = await served.chat("s"), await served.chat("s", "Hi")
    call, other = first.removeprefix("chatcmpl-"), second.removeprefix("chatcmpl-")
    for said in (
        {"thumb": "up"}, {"thumb": "down", "comment": "no"}, {"stars": 4}, {"correction": "42"}, {"abandoned": True},
        {"comment": "hm"}, {"outcome": {"success": True, "reward": -3.5}}, {"outcome": {"reward": 7}},
        {"outcome": {"correct": False, "reward": 7}},
    ):  # fmt: skip
        assert (await served.given(session="s", call=first, **said))["new"] == 1
    assert (await served.given(call=first, over={"call": second}))["new"] == 2
    found = [(one.source, one.kind, one.value, one.comment, one.data) for one in served.stored()]
    assert found == [
        ("human", "thumb", 1.0, "", {}),
        ("human", "thumb", 0.0, "no", {}),
        ("human", "stars", 0.8, "", {}),
        ("human", "correction", 0.2, "", {"text": "42"}),
        ("caller", "abandoned", 0.0, "", {}),
        ("human", "comment", 0.5, "hm", {}),
        ("caller", "outcome", 1.0, "", {"success": 1.0, "reward": -3.5}),
        ("caller", "outcome", 1.0, "", {"reward": 7.0}),
        ("caller", "outcome", 0.0, "", {"correct": 0.0, "reward": 7.0}),
        ("human", "choice", 1.0, "", {"over": other}),
        ("human", "choice", 0.0, "", {"under": call}),
    ]
    assert [one.call for one in served.stored()] == [call] * 10 + [other]
    assert {one.trajectory for one in served.stored()} == {"s"}
    assert [event.subject for _, event in EVENTS.read(served.db, kind="feedback.given")] == ["s"] * 11


async def test_a_session_is_named_by_path_header_field_or_call(served: Served) -> None:
    call = await served.chat("s")
    told = [
        await served.post(f"/sessions/s{FEEDBACK_PATH}", {"stars": 1}),
        await served.give(stars=2, headers={"x-loomrl-session": "s"}),
        await served.give(stars=3, trajectory="s"),
        await served.give(stars=4, session="s", trajectory="s"),
        await served.give(stars=5, call=call),
    ]
    assert [answer.status_code for answer in told] == [200] * 5
    assert [answer.json()["trajectory"] for answer in told] == ["s"] * 5
    assert [bool(one.call) for one in served.stored()] == [False] * 4 + [True]


async def test_one_of_several_answers_of_a_call_is_named_by_its_number(served: Served) -> None:
    call = (await served.chat("s", n=2)).removeprefix("chatcmpl-")
    await served.given(call=f"{call}/1", over={"call": f"{call}/0"})
    assert [(one.call, one.value) for one in served.stored()] == [(f"{call}/1", 1.0), (f"{call}/0", 0.0)]
    assert (await served.give(call=f"{call}/2", thumb="up")).status_code == 404
    served.archive()
    served.archive(days=40)
    assert SESSIONS.find(served.db, "s") is None
    assert (await served.given(session="s", call=f"{call}/1", thumb="up"))["call"] == f"{call}/1"
    assert (await served.give(session="s", call=f"{call}/2", thumb="up")).status_code == 404


async def test_a_choice_between_sessions_names_both(served: Served) -> None:
    await served.chat("s")
    await served.chat("t")
    await served.given(session="s", over={"session": "t"})
    data = [(one.trajectory, one.data) for one in served.stored()]
    assert data == [("s", {"over": "t", "trajectory": "t"}), ("t", {"under": "s", "trajectory": "s"})]
    assert (await served.give(session="s", over={"session": "s"})).status_code == 400
    assert (await served.give(session="s", over={"session": "nobody"})).json()["error"]["param"] == "over.session"


async def test_a_repetition_stores_nothing_more(served: Served) -> None:
    await served.chat("s")
    for same in (
        {"thumb": "up"}, {"thumb": "up", "id": "mine"}, {"thumb": "up", "headers": {"idempotency-key": "header"}},
    ):  # fmt: skip
        told = [await served.given(session="s", **same) for _ in range(3)]
        assert [each["new"] for each in told] == [1, 0, 0]
        assert len({each["id"] for each in told}) == 1
    assert len(served.stored()) == 3
    together = await asyncio.gather(*(served.given(session="s", stars=3) for _ in range(20)))
    assert sum(each["new"] for each in together) == 1


async def test_an_id_with_other_content_is_a_conflict_and_other_keys_may_use_it(served: Served) -> None:
    await served.chat("s")
    await served.chat("t", key=served.theirs)
    await served.given(session="s", thumb="up", id="one")
    for other in ({"thumb": "down"}, {"stars": 5}, {"thumb": "up", "comment": "more"}):
        answer = await served.give(session="s", id="one", **other)
        assert answer.status_code == 409
        assert "'one' was given with other content" in answer.json()["error"]["message"]
    assert (await served.give(session="t", thumb="down", id="one", key=served.theirs)).status_code == 200
    assert [one.value for one in served.stored()] == [1.0, 0.0]


async def test_what_is_anothers_looks_like_what_does_not_exist(served: Served) -> None:
    call = await served.chat("s", key=served.theirs)
    served.archive()
    await served.chat("open", key=served.theirs)
    answers = [
        await served.give(thumb="up", **place)
        for place in ({"session": "s"}, {"session": "open"}, {"session": "never"}, {"call": call}, {"call": "never"})
    ]
    told = [(a.status_code, a.text.replace("open", "s").replace("never", "s").replace(call[9:], "s")) for a in answers]
    assert len(set(told[:3])) == len(set(told[3:])) == 1
    assert told[0][0] == 404
    assert {name for a in answers for name in a.headers} == set(answers[2].headers)
    assert served.stored() == []
    assert (await served.give(session="s", thumb="up", key=served.admin)).status_code == 200


async def test_only_a_key_for_feedback_may_give_it(served: Served) -> None:
    await served.chat("s")
    assert (await served.give(session="s", thumb="up", key=served.key("act", "record"))).status_code == 403
    assert (await served.give(session="s", thumb="up", key="loom-000000000000-" + "0" * 48)).status_code == 401
    assert served.stored() == []


async def test_feedback_comes_late_to_the_hub(served: Served) -> None:
    call = (await served.chat("s")).removeprefix("chatcmpl-")
    await served.chat("t", key=served.theirs)
    assert served.archive(days=1).stored == 2
    await served.given(session="s", thumb="up")
    assert served.archive(days=40).deleted == 2
    assert SESSIONS.find(served.db, "s") is None
    assert (await served.given(session="s", call=call, thumb="down"))["call"] == call
    assert (await served.give(session="s", call="never", thumb="down")).status_code == 404
    assert (await served.give(session="t", thumb="down")).status_code == 404
    with open_endpoint_hub(served.store_url, "m", HubConfig()) as hub:
        hub.delete(["s"])
    assert (await served.give(session="s", stars=1)).status_code == 404
    assert [one.value for one in served.stored()] == [1.0, 0.0]


async def test_words_lose_their_secrets_before_they_are_stored(served: Served) -> None:
    await served.chat("s")
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    await served.given(session="s", comment=f"write to ada@example.org, my key is {secret}", thumb="down")
    await served.given(session="s", correction=f"the key is {secret}")
    assert (await served.given(session="s", correction=f"the key is {secret}"))["new"] == 0
    text = json.dumps([[one.comment, dict(one.data)] for one in served.stored()])
    assert "example.org" not in text
    assert secret not in text
    assert "the key is" in text
    assert secret not in json.dumps([dict(event.data) for _, event in EVENTS.read(served.db)])


async def test_people_who_opted_out_are_not_judged(served: Served) -> None:
    await served.chat("s", user="ada")
    assert people_in(served.db, ["s"]) == {"s": {person_hash("m", "ada")}}
    opt_out(served.db, "m", ["ada"], at=0.0)
    answer = await served.give(session="s", thumb="up")
    assert (answer.status_code, served.stored()) == (403, [])
    assert "opted out" in answer.json()["error"]["message"]
    served.recorder._out_at = 0.0
    await served.chat("unrecorded", user="ada")
    assert (await served.give(session="unrecorded", thumb="up")).status_code == 404


async def test_times_of_callers_are_bounded_and_noted(served: Served) -> None:
    await served.chat("s")
    began, now = time.time() - 1, time.time()
    for number, at in enumerate((now + DAY_S, now - DAY_S, 0)):
        await served.given(session="s", thumb="up", id=str(number), created_at=at)
    assert [one.data["told_at"] for one in served.stored()] == [now + DAY_S, now - DAY_S, 0]
    assert all(began <= one.created_at <= time.time() for one in served.stored())
    served.ahead_s = 10 * DAY_S
    await served.given(session="s", thumb="up", id="late", created_at=now + 5 * DAY_S)
    assert served.stored()[-1].created_at == now + 5 * DAY_S
    assert (await served.given(session="s", thumb="up", id="0", created_at=now + DAY_S))["new"] == 0
    for wrong in (-1, 1e12, "yesterday", True):
        assert (await served.give(session="s", thumb="up", created_at=wrong)).status_code == 400


WRONG = r"""
{"session": "s", "thum": "up"} | thum: the field is unknown, or not supported. Did you mean 'thumb'?
{"session": "s"} | nothing is said
{"session": "s", "comment": " "} | nothing is said
{"thumb": "up"} | session: the field is missing
{"session": "s", "thumb": "sideways"} | thumb: it must be 'up' or 'down', got 'sideways'.
{"session": "s", "thumb": true} | thumb: it must be 'up' or 'down', got true
{"session": "s", "stars": 6} | stars: it must be less than or equal to 5, got 6
{"session": "s", "thumb": "up", "stars": 5} | stars: it stands beside 'thumb'
{"session": "s", "correction": ""} | correction: it is empty
{"session": "s", "comment": "a\u0000b"} | NUL cannot be stored
{"session": "s", "abandoned": false} | abandoned: it must be True, got false
{"session": "s", "outcome": {}} | outcome: it says nothing
{"session": "s", "outcome": {"succes": 1}} | outcome.succes: the field is unknown
{"session": "s", "outcome": {"success": 2}} | outcome.success: it must be less than or equal to 1, got 2
{"session": "s", "outcome": {"correct": -1}} | outcome.correct: it must be greater than or equal to 0, got -1
{"session": "s", "outcome": 1} | outcome: it must be an object, got 1
{"session": "s", "over": {}} | over.session: the field is missing
{"session": "s", "over": "t"} | over: it must be an object, got 't'
{"session": "s", "trajectory": "t", "thumb": "up"} | two sessions are named, 's' and 't'
{"session": "s", "thumb": "up", "call": "c/x"} | a choice is named by its number
{"session": "s", "thumb": "up", "id": ["x"]} | id: it must be a valid string, got ['x']
"""
ODD: list[tuple[Any, str]] = [
    ({"session": "s", "stars": 10**400}, "more than 64 bits"),
    ({"session": "s", "correction": "x" * 32_769}, "correction: String should have at most 32768 characters"),
    ({"session": "s", "comment": "x" * 8_193}, "comment: String should have at most 8192 characters"),
    ({"session": "s" * 300, "thumb": "up"}, "is not a name: it needs 1 to 256 printable characters"),
    ([], "must be a JSON object"),
    (b"", "is not JSON"),
    (b'{"session": "s", "comment": "\xff\xfe"}', "is not JSON"),
    (b'{"session": "s", "comment": "\\ud800"}', "is not JSON"),
    (b'{"session": "s", "comment": "cut', "is not JSON"),
    (b"[" * 100_000, "is not JSON"),
]


async def test_what_is_wrong_is_said_by_name(served: Served) -> None:
    lines = [line.split(" | ") for line in WRONG.strip().splitlines()]
    for body, said in [*((body.encode(), said) for body, said in lines), *ODD]:
        answer = await served.post(FEEDBACK_PATH, body)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (400, "invalid_request_error"), body
        assert said in error["message"], body
    assert served.stored() == []


async def test_two_different_idempotency_keys_are_refused(served: Served) -> None:
    await served.chat("s")
    answer = await served.give(session="s", thumb="up", id="a", headers={"idempotency-key": "b"})
    assert answer.status_code == 400
    assert "Idempotency-Key" in answer.json()["error"]["message"]


async def test_a_body_of_ten_megabytes_is_refused_and_other_methods_too(served: Served) -> None:
    answer = await served.give(session="s", comment="x" * 10_000_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert (
        await served.client.get(FEEDBACK_PATH, headers={"authorization": f"Bearer {served.mine}"})
    ).status_code == 405


async def test_where_nothing_is_recorded_nothing_is_known(served: Served) -> None:
    served.gateway.intake = None
    assert (await served.give(session="s", thumb="up")).status_code == 404


async def test_a_database_that_does_not_answer_is_no_fault_of_the_caller(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.chat("s")

    def broken(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(intake, "append_feedback", broken)
        answer = await served.give(session="s", thumb="up")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "disk" not in answer.text
    assert (await served.give(session="s", thumb="up")).status_code == 200


async def test_feedback_that_meets_a_deletion_is_gone_with_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.chat("s", user="ada")
    store = intake.append_feedback

    def deleted_first(*arguments: Any) -> int:
        erase(served.db, begin_erasure(served.db, "m", "ada", at=0.0).trajectories)
        return store(*arguments)

    monkeypatch.setattr(intake, "append_feedback", deleted_first)
    assert (await served.give(session="s", thumb="up")).status_code == 404
    assert served.stored() == []


# -- measuring --------------------------------------------------------------------------------------------------------

ARMS = (Arm(name="stable", policy="v", share=0.5), Arm(name="canary", policy="w", share=0.5, role=Role.CANARY))


async def test_feedback_of_a_measured_session_is_an_observation_of_its_arm(store_url: str) -> None:
    endpoint = Endpoint(name="m", revision=3, arms=ARMS, created_at=0.0)
    policies = {name: [Script()] for name in ("v", "w")}
    view = FixedView({"m": endpoint}, policies)  # type: ignore[arg-type]
    async with Served(store_url, view) as served:
        measures = served.gateway.measures = Measures(served.db, view, source="g", settle_s=1e9)
        await measures.start()
        said = {
            "down": {"thumb": "down"}, "up": {"thumb": "up"}, "stars": {"stars": 2}, "corrected": {"correction": "x"},
            "left": {"abandoned": True}, "comment": {"comment": "hm"}, "told": {"outcome": {"success": 1, "reward": 9}},
        }  # fmt: skip
        arms = {}
        for session, body in said.items():
            answer = await served.post(
                f"/sessions/{session}/v1/chat/completions",
                {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
            )
            arms[session] = answer.headers["x-loomrl-arm"]
            await served.given(session=session, **body)
        await served.chat("a")
        await served.chat("b")
        await served.given(session="a", over={"session": "b"})
        await measures.close()
        every = [each for _, each in read_observations(served.db, "m")]
        negative = sorted((each.arm, each.value) for each in every if each.metric == "negative")
        expected = {"down": 1.0, "up": 0.0, "stars": 1.0, "corrected": 1.0, "left": 1.0}
        told = sorted((arms[name], value) for name, value in expected.items())
        assert len(negative) == len(told) + 2, "and one for each session of the choice"
        assert all(negative.count(each) >= told.count(each) for each in told)
        assert [each.value for each in every if each.metric == "success"] == [1.0]
        assert [each.value for each in every if each.metric == "reward"] == [9.0]
        assert {each.revision for each in every} == {3}
        guard = {"metric": "negative", "better": "lower", "margin": 0.1}
        trail = ReleaseEvidenceLog(
            ReleasePlan.parse({"guards": [guard]}), first_revision=3, shares={3: {"stable": 0.5, "canary": 0.5}}
        )
        trail.take(every)
        (finding,) = trail.findings()
        assert finding.baseline.count + finding.challenger.count == len(negative)


async def test_a_choice_within_one_session_says_nothing_about_its_arm(served: Served) -> None:
    call, other = await served.chat("s"), await served.chat("s", "again")
    await served.given(call=call, over={"call": other})
    assert [metrics_of_feedback(one) for one in served.stored()] == [{}, {}]


# -- derived ----------------------------------------------------------------------------------------------------------


async def test_implicit_feedback_is_derived_once_when_a_session_is_archived(served: Served) -> None:
    question = {"role": "user", "content": "What is the capital of Switzerland?"}

    async def talk(session: str, **more: Any) -> None:
        asked = {"model": "m", "messages": [question], **more}
        first = await served.post(f"/sessions/{session}/v1/chat/completions", asked)
        reply = first.json()["choices"][0]["message"]
        again = [question, {"role": "assistant", "content": reply["content"]}, question]
        await served.post(f"/sessions/{session}/v1/chat/completions", {**asked, "messages": again})

    await talk("s")
    await talk("gone", user="ada")
    opt_out(served.db, "m", ["ada"], at=0.0)
    assert served.archive().derived == 1
    (found,) = served.stored()
    assert (found.trajectory, found.source, found.kind, found.value) == ("s", "implicit", "asked_again", 0.2)
    with served.db.write() as connection:  # as after a kill between the feedback and the session
        connection.execute(SESSIONS.table.update().values(state="ended"))
    assert served.archive().derived == 0
    assert len(served.stored()) == 1
