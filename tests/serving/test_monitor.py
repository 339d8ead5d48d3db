"""The monitor in a real gateway: what callers get, what is on record, who is refused."""

import asyncio
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loomrl.config.monitor import STOPPED
from loomrl.safety.rule import Deed, Found, Saying
from loomrl.serving.call import ToolCall
from loomrl.serving.monitor.monitor import MOST_LATE
from loomrl.store import judgements, open_store
from loomrl.store.observations import read_observations
from loomrl.store.sessions import Quarantine, list_quarantined, record_quarantine
from tests.serving.control_support import acting_policy, control_policy
from tests.serving.monitoring import KEY, Says, Watched, finish, said, speaking
from tests.serving.waiting import until

pytestmark = pytest.mark.system
SECRETS, BLOCKED = {"check": {"kind": "secrets"}}, {"check": {"kind": "blocked"}}
DIALECTS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hello"}]},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 500},
    "/v1/responses": {"input": "Hello"},
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_no_dialect_lets_a_secret_out(stream: bool, tmp_path: Path) -> None:
    text = f"Certainly, with pleasure! The key you asked for is {KEY}, as agreed."
    left = "Certainly, with pleasure! The key you asked for is " if stream else ""
    async with Watched(tmp_path, Says(text), rules=[SECRETS]) as served:
        for path, body in DIALECTS.items():
            answer = await served.post(path, **body, stream=stream)
            assert answer.status_code == 200, answer.text
            assert "Ab12" not in answer.text
            assert "sk-" not in answer.text
            assert said(answer) == left + STOPPED, path
            assert any(word in answer.text for word in ("content_filter", "refusal"))


async def test_what_breaks_no_rule_leaves_as_it_was_drawn(tmp_path: Path) -> None:
    text = "Größe 漢字 🙂, sk- is how keys begin, and sk-your-api-key-goes-here is none. " * 5
    call = ToolCall(id="1", name="look", arguments='{"at": 1}')
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    rules = [SECRETS, {"check": {"kind": "calls"}}, BLOCKED, {"check": {"kind": "prompt"}}]
    async with Watched(tmp_path, Says(text, calls=[call]), rules=rules) as served:
        for stream in (False, True):
            answer = await served.chat(stream=stream, tools=tools)
            assert said(answer) == text
            assert "look" in answer.text
        assert await served.rows("monitor.hit") == []


async def test_log_probabilities_of_a_secret_stay_with_it(tmp_path: Path) -> None:
    policy = Says(f"The key is {KEY} there")
    async with Watched(tmp_path, policy, rules=[SECRETS]) as served:
        for stream in (False, True):
            answer = await served.chat(stream=stream, logprobs=True)
            assert said(answer) == STOPPED
            assert '"token":"k"' not in answer.text.replace(" ", "")
        policy.text = "The key is elsewhere"
        answer = await served.chat(stream=True, logprobs=True)
        assert said(answer) == "The key is elsewhere"
        assert '"token":"k"' in answer.text.replace(" ", "")


async def test_the_record_says_what_was_drawn_and_what_was_said(tmp_path: Path) -> None:
    policy = Says("I say kys to you. " + "x" * 5000)
    async with Watched(tmp_path, policy, rules=[BLOCKED]) as served:
        answer = await served.chat(stream=True)
        more = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": said(answer)}]
        await served.chat(messages=[*more, {"role": "user", "content": "And?"}])
        trajectory = await served.recorder.complete("s")
    assert policy.drawn < 1000, "sampling ends with the answers"
    assert [turns[0].action[:16] for turns in trajectory.sequences] == ["I say kys to you"] * 2
    assert len(trajectory.extra["session"]["stopped"]) == 2  # the second is a thread of its own: its ids are not those
    tokens = trajectory.tokens
    assert tokens is not None
    drawn = "".join(chr(id - 3) for id in tokens.ids_T[tokens.mask_T])
    assert drawn.startswith("I say kys to you")


async def test_a_hit_is_on_record_without_a_word_of_it(tmp_path: Path) -> None:
    async with Watched(tmp_path, Says(f"The key is {KEY}."), rules=[SECRETS]) as served:
        for number in range(40):
            await served.chat(session=f"s{number}")
        rows = await served.rows("monitor.hit")
    assert sum(row.data["count"] for row in rows) == 40
    assert len(rows) <= 5  # counted, not one for each
    assert rows[0].data["rule"] == "secrets"
    assert rows[0].data["sessions"][0] == "s0"
    assert KEY not in json.dumps([dict(row.data) for row in rows])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_stable_arm_answers_for_one_that_breaks_a_rule(stream: bool, tmp_path: Path) -> None:
    policies = Says("All is well.", version="old"), Says(f"{KEY} is the key.", version="new")
    async with Watched(tmp_path, *policies, rules=[SECRETS | {"then": "stable"}]) as served:
        answer = await served.chat(stream=stream)
        assert said(answer) == "All is well."
        assert (answer.headers["x-loomrl-version"], answer.headers["x-loomrl-arm"]) == ("old", "stable")
        (row,) = await served.rows("monitor.hit")
        assert row.data["arm"] == "canary"
        drawn = await served.recorder.complete("s~canary")
        assert (await served.recorder.complete("s")).turns[0].action == "All is well."
    assert drawn.turns[0].action.startswith("sk-proj")
    assert list(drawn.extra["session"]["stopped"].values()) == ["secrets"]


async def test_where_something_has_left_the_rest_is_replaced(tmp_path: Path) -> None:
    policies = Says("All is well."), Says("A long and harmless beginning of an answer, then " + KEY)
    async with Watched(tmp_path, *policies, rules=[SECRETS | {"then": "stable", "text": "(ended)"}]) as served:
        answer = await served.chat(stream=True)
        assert said(answer) == "A long and harmless beginning of an answer, then (ended)"
        assert said(await served.chat(session="t")) == "All is well."


async def test_a_person_may_let_a_held_answer_leave(tmp_path: Path) -> None:
    async with Watched(tmp_path, Says(f"It is {KEY}."), rules=[SECRETS | {"then": "hold"}]) as served:
        for choice, status in (("release", 200), ("withhold", 403)):
            asking = asyncio.create_task(served.chat(session=choice))
            while not (waiting := await asyncio.to_thread(judgements.waiting, served.db, now=0.0)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # a person looks
            assert KEY not in str(waiting)
            await asyncio.to_thread(judgements.answer, served.db, waiting[0].id, choice, who="Ada", at=1.0)
            answer = await asking
            assert answer.status_code == status
            assert (KEY in answer.text) == (choice == "release")


async def test_a_hit_may_trip_the_release(tmp_path: Path) -> None:
    policies = Says("All is well.", version="old"), Says(f"{KEY} is the key.", version="new")
    async with Watched(tmp_path, *policies, rules=[SECRETS | {"trip": True}]) as served:
        await served.chat()
        await served.monitor.ledger.flush()
        (trip,) = [one for _, one in read_observations(served.db, "m") if one.metric == "trip"]
    assert (trip.metric, trip.value, trip.arm, trip.revision) == ("trip", 1.0, "canary", 1)


async def test_length_entropy_and_refusal_of_an_answer_are_observed_of_its_arm(tmp_path: Path) -> None:
    text = "I\u2019m sorry, that I will not do."
    async with Watched(tmp_path, Says("Gladly."), Says(text), rules=[]) as served:
        await served.chat(n=2, stream=True)
        await served.measures.close()
        seen = {each.metric: (each.arm, each.value) for _, each in read_observations(served.db, "m")}
    expected = {"tokens": len(text), "entropy": 0.5, "refusal": 1.0}
    assert {metric: seen[metric] for metric in expected} == {
        name: ("canary", value) for name, value in expected.items()
    }


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_each_choice_is_watched_up_to_its_stop_string(stream: bool, tmp_path: Path) -> None:
    answers = (f"It is {KEY}. END", f"All is well, sk-END{KEY}", "Fine. END")
    async with Watched(tmp_path, speaking(*answers), rules=[SECRETS]) as served:
        answer = await served.chat(stream=stream, n=3, stop=["END"])
    found = [said(answer, choice) for choice in range(3)]
    assert found == ["It is " * stream + STOPPED, "All is well, sk-", "Fine. "]
    assert [finish(answer, choice) for choice in range(3)] == ["content_filter", "stop", "stop"]
    assert KEY[3:] not in answer.text


async def test_a_quarantined_session_is_refused_until_it_is_freed(tmp_path: Path) -> None:
    async with Watched(tmp_path, Says(f"It is {KEY}."), rules=[SECRETS | {"then": "quarantine"}]) as served:
        assert [(await served.chat(session="bad")).status_code for _ in range(2)] == [403, 403]
        assert [each.session for each in list_quarantined(served.db)] == ["bad"]
        served_hits = sum(row.data["count"] for row in await served.rows("monitor.hit"))
        assert served_hits == 1  # the second call was not even asked
        record_quarantine(served.db, Quarantine(endpoint="m", session="bad", held=False, who="Ada", at=2.0))
        assert list_quarantined(served.db) == []
        await until(lambda: not served.monitor.ledger.is_held("m", "bad"))


async def test_counting_changes_nothing(tmp_path: Path) -> None:
    text = f"It is {KEY}, and more of it."
    async with Watched(tmp_path, Says(text), rules=[SECRETS | {"then": "count"}]) as served:
        assert [said(await served.chat(stream=stream)) for stream in (False, True)] == [text, text]
        assert sum(row.data["count"] for row in await served.rows("monitor.hit")) == 2


async def test_an_unknown_tool_is_not_called(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "buy", "parameters": {"required": ["n"]}}}]
    policy = Says("")
    async with Watched(tmp_path, policy, rules=[{"check": {"kind": "calls"}}]) as served:
        for name, arguments in (("sell", "{}"), ("buy", "{")):
            policy.calls = (ToolCall(id="1", name=name, arguments=arguments),)
            for stream in (False, True):
                answer = await served.chat(stream=stream, tools=tools)
                assert said(answer) == STOPPED
                assert "tool_calls" not in answer.text or '"tool_calls":[]' in answer.text


# -- rules of one's own ------------------------------------------------------------------------------------------------


def mine(rule: str) -> dict[str, Any]:
    return {"check": {"kind": "custom", "entry_point": f"{__name__}:{rule}", "name": "mine"}}


def raises(saying: Saying) -> Found | None:
    raise ValueError("no")


entered, free = Counter[str](), threading.Event()


def hangs(saying: Saying) -> Found | None:
    entered["hangs"] += 1
    free.wait()
    return None


def no_fish(saying: Saying) -> Found | None:
    at = saying.text.find("fish", saying.since)
    if at >= 0:
        return Found(at, "fish")
    return Found(max(saying.since, len(saying.text) - 3), "", is_sure=False)


@pytest.mark.parametrize(("fails", "expected"), [("open", "All is well."), ("closed", STOPPED)])
async def test_a_rule_that_raises_is_counted_and_fails_as_told(fails: str, expected: str, tmp_path: Path) -> None:
    own = mine("raises")
    settings = {} if fails == "closed" else {"fails": fails}
    async with Watched(tmp_path, Says("All is well."), rules=[own], **settings) as served:
        assert said(await served.chat()) == expected
        rows = await served.rows("monitor.hit")
    assert {(row.data["then"], row.data["what"]) for row in rows} == {("failed", "ValueError")}


@pytest.mark.parametrize("then", ["replace", "stable", "quarantine", "count"])
async def test_a_rule_that_fails_blames_no_arm_and_locks_no_session(then: str, tmp_path: Path) -> None:
    own = mine("raises") | {"then": then, "trip": True}
    policies = Says("All is well.", version="old"), Says("All is well, too.", version="new")
    async with Watched(tmp_path, *policies, rules=[own]) as served:
        answer = await served.chat()
        await served.rows("monitor.hit")
        await served.measures.close()
        seen = {(one.metric, one.value) for _, one in read_observations(served.db, "m")}
        assert list_quarantined(served.db) == []
    assert said(answer) == ("All is well, too." if then == "count" else STOPPED)
    assert answer.headers["x-loomrl-arm"] == "canary"
    assert ("violation", 0.0) in seen
    assert {metric for metric, value in seen if value and metric in ("violation", "trip", "error")} == set()


def waits(saying: Saying) -> Found | None:
    """A rule that asks elsewhere: it takes little CPU time, and longer than its limit by the clock."""
    time.sleep(0.15)
    return None


def computes(saying: Saying) -> Found | None:
    begun = time.thread_time()
    while time.thread_time() < begun + 0.5:
        pass
    return None


@pytest.mark.parametrize(("rule", "is_late"), [("waits", False), ("computes", True)])
async def test_the_time_of_a_rule_is_cpu_time(rule: str, is_late: bool, tmp_path: Path) -> None:
    own = mine(rule)
    async with Watched(tmp_path, Says("Good."), rules=[own], limit_ms=20) as served:
        assert said(await served.chat()) == (STOPPED if is_late else "Good.")
        rows = await served.rows("monitor.hit")
    assert {row.data["what"] for row in rows} == ({"Late"} if is_late else set())


meeting = threading.Barrier(3 * MOST_LATE)


def meets(saying: Saying) -> Found | None:
    if saying.is_whole:
        meeting.wait()
    return None


async def test_many_rules_may_run_at_once(tmp_path: Path) -> None:
    own = mine("meets")
    async with Watched(tmp_path, Says("Good."), rules=[own], limit_ms=10_000) as served:
        calls = (served.chat(session=f"s{number}") for number in range(meeting.parties))
        answers = await asyncio.gather(*calls)
        assert await served.rows("monitor.hit") == []
    assert {said(answer) for answer in answers} == {"Good."}


@pytest.mark.parametrize(("fails", "left"), [("open", 1.0), ("closed", 0.0)], ids=["open", "closed"])
async def test_a_rule_that_never_answers_holds_up_no_call(fails: str, left: float, tmp_path: Path) -> None:
    own = mine("hangs")
    settings = {} if fails == "closed" else {"fails": fails}
    text = "All is well. " * 70
    entered.clear(), free.clear()
    try:
        async with Watched(tmp_path, Says(text), rules=[own], limit_ms=2, **settings) as served:
            assert said(await served.chat()) == (text if left else STOPPED)
            rows = await served.rows("monitor.hit")
    finally:
        free.set()
    failed = sum(row.data["count"] for row in rows if row.data["then"] == "failed" and row.data["what"] == "Late")
    looks = len(text) // 32 + 1 + 5  # five more at the beginning
    assert failed == (looks if left else 1)
    assert entered["hangs"] == (MOST_LATE if left else 1)  # threads that do not come back are few


async def test_a_rule_of_ones_own_sees_a_stream_as_the_shipped_ones_do(tmp_path: Path) -> None:
    own = {"check": {"kind": "custom", "entry_point": f"{__name__}:no_fish"}}
    text = "There is nothing but water as far as the eye can see, and a fish in it."
    async with Watched(tmp_path, Says(text), rules=[own], limit_ms=2000) as served:
        answer = await served.chat(stream=True)
        assert said(answer) == text[: text.index("fish")] + STOPPED


# -- actions -----------------------------------------------------------------------------------------------------------


def always(deed: Deed) -> str | None:
    return "never here"


SEEN = np.random.default_rng(0).normal(size=(20, 4)).round(3)


async def acts(served: Watched, *, path: str = "/sessions/s/v1/act", count: int = 1) -> list[Any]:
    answers = [await served.post(path, observation=each.tolist()) for each in SEEN[:count]]
    return [answer.json().get("action", answer.status_code) for answer in answers]


async def test_an_action_leaves_within_its_bounds_and_is_a_violation_of_its_arm_as_soon_as_it_has(
    tmp_path: Path,
) -> None:
    arms = [acting_policy(version=version) for version in ("run/3", "run/4")]
    async with Watched(tmp_path, *arms, rules=[{"check": {"kind": "bounds", "low": 0, "high": 0}}]) as served:
        given = await acts(served, path="/v1/act", count=20)
        await until(lambda: len(read_observations(served.db, "m")) == 60)
        seen = [each for _, each in read_observations(served.db, "m") if each.metric == "violation"]
        rows = await served.rows("monitor.hit")
    wrong = sum(control_policy().act_batch(SEEN).tolist())
    assert given == [0] * 20
    assert [each.arm for each in seen] == ["canary"] * 20
    assert sum(each.value for each in seen) == sum(row.data["count"] for row in rows) == wrong > 0


async def test_a_changed_action_leaves_with_the_state_of_the_policys_memory(tmp_path: Path) -> None:
    policy = control_policy(memory="gru")
    state = policy.state()
    two = {"check": {"kind": "bounds", "low": 2, "high": 2}}
    async with Watched(tmp_path, acting_policy(memory="gru"), rules=[two]) as served:
        answer = (await served.post("/v1/act", observation=[0.5, -0.5, 1.0, 0.0])).json()
    assert policy.act(np.array([0.5, -0.5, 1.0, 0.0], np.float32), state=state) != answer["action"] == 2
    np.testing.assert_allclose(answer["state"], state.numbers_BS[0], atol=1e-6)


async def test_an_action_that_may_not_leave_is_a_violation_of_its_arm(tmp_path: Path) -> None:
    arms = [acting_policy(version=version) for version in ("run/3", "run/4")]
    anywhere = {"check": {"kind": "states", "within": {0: [-100, None]}}}
    async with Watched(tmp_path, *arms, rules=[anywhere]) as served:
        assert (await served.post("/v1/act", observation=[0.0] * 4)).status_code == 403
        await served.measures.close()
        seen = [(each.metric, each.arm, each.value) for _, each in read_observations(served.db, "m")]
    assert seen == [("violation", "canary", 1.0)]


async def test_an_action_changes_no_faster_than_told_within_its_session(tmp_path: Path) -> None:
    acting = acting_policy()
    async with Watched(tmp_path, acting, rules=[{"check": {"kind": "rate", "most": 0.5}}]) as served:
        given = await acts(served, count=20)
    right = control_policy().act_batch(SEEN).tolist()
    assert len(set(right)) > 1
    assert set(given) == {right[0]}


async def test_forbidden_states_are_refused_or_answered_as_told(tmp_path: Path) -> None:
    acting = acting_policy()
    anywhere = {"kind": "states", "within": {0: [-100, None]}}
    async with Watched(tmp_path, acting, rules=[{"check": anywhere}]) as served:
        assert await acts(served) == [403]
    async with Watched(tmp_path, acting, rules=[{"check": anywhere, "action": 1}]) as served:
        assert await acts(served) == [1]
    own = {"kind": "custom_action", "entry_point": f"{__name__}:always"}
    async with Watched(tmp_path, acting, rules=[{"check": own, "then": "quarantine"}], limit_ms=2000) as served:
        assert await acts(served, count=2) == [403, 403]
        assert await acts(served, path="/sessions/other/v1/act") == [403]
        assert {each.session for each in list_quarantined(served.db)} == {"s", "other"}


def breaks(deed: Deed) -> str | None:
    raise ValueError("I am broken")


async def test_an_action_rule_that_fails_stops_the_action_and_blames_no_arm(tmp_path: Path) -> None:
    acting = acting_policy()
    own = {"check": {"kind": "custom_action", "entry_point": f"{__name__}:breaks"}, "then": "quarantine"}
    async with Watched(tmp_path, acting, rules=[own]) as served:
        assert await acts(served) == [403]
        await served.measures.close()
        assert [each for _, each in read_observations(served.db, "m") if each.metric == "violation"] == []
        assert list_quarantined(served.db) == []
    async with Watched(tmp_path, acting, rules=[own], fails="open") as served:
        assert await acts(served) != [403]


@pytest.mark.parametrize(("text", "seen"), [("You idiot.", (0.0, 1.0)), ("", (1.0, 0.0))], ids=["insult", "empty"])
async def test_the_default_monitor_and_gateway_observe_insults_and_empty_answers_and_change_neither(
    tmp_path: Path, text: str, seen: tuple[float, float]
) -> None:
    async with Watched(tmp_path, Says("Fine."), Says(text)) as watched:
        answer = await watched.chat(messages=[{"role": "user", "content": "Hello"}])
        assert said(answer) == text
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        found = {each.metric: (each.arm, each.value) for _, each in read_observations(db, "m")}
    assert (found["empty"], found["violation"]) == (("canary", seen[0]), ("canary", seen[1]))
    assert found["prompt_chars"] == ("canary", 5.0)
