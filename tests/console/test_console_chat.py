"""The console's chat with an endpoint, through a real gateway that asks for keys."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from html import unescape
from typing import Any

import pytest

from loomrl.serving.deployment.key import StoredKeys
from loomrl.serving.durable import open_recorder
from loomrl.serving.recorder import Recorder
from loomrl.store import open_store
from loomrl.store.feedback import FEEDBACK
from loomrl.store.keys import KEYS
from loomrl.store.replicas import Replica, ReplicaRole, beat
from loomrl.store.sessions import SESSIONS
from tests.console.console_support import Browser, console, key
from tests.serving.local_gateway import LocalGateway
from tests.serving.scripted import Adder, Weigher

PAGE = "/endpoints/steered/chat"


class Chatting:
    """A gateway with two endpoints, of which LoomDB knows the front."""

    def __init__(self, url: str, recorder: Recorder | None = None) -> None:
        self.url, self.db, self.policy = url, open_store(url), Weigher()
        keys = StoredKeys(self.db, required=True)
        policies = {"steered": self.policy, "plain": Adder()}
        self.gateway = LocalGateway(policies, recorder or open_recorder(url), keys=keys)

    async def __aenter__(self) -> "Chatting":
        await self.gateway.__aenter__()
        for name in ("steered", "plain"):
            self.front(name, self.gateway.url)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.gateway.__aexit__(None, None, None)
        self.db.close()

    def front(self, endpoint: str, address: str) -> None:
        beat(
            self.db,
            Replica(id=endpoint, role=ReplicaRole.FRONT, endpoint=endpoint, address=address, node="here", pid=1),
        )

    async def browse(self, visit: Callable[[Browser], None], *scopes: str) -> None:
        """Visit the console as somebody, open where there are no scopes."""

        def visiting() -> None:
            with console(self.url) as (source, app), Browser(app) as browser:
                if scopes:
                    browser.sign_in(key(source, *scopes)[0])
                visit(browser)

        await asyncio.to_thread(visiting)


@pytest.fixture
async def chatting(sqlite_url: str) -> AsyncIterator[Chatting]:
    async with Chatting(sqlite_url) as opened:
        yield opened


def say(browser: Browser, text: str, *, page: str = PAGE, said: str = "", **weights: int) -> Any:
    fields = {f"weight.{name}": str(weight) for name, weight in weights.items()}
    return browser.submit(page, page=page, text=text, said=said, **fields)


def said_in(page: str) -> str:
    """The conversation that a page carries."""
    found = re.search(r'name="said" value="([^"]*)"', page)
    assert found is not None
    return unescape(found[1])


async def test_a_conversation_goes_on_with_the_preference_of_the_sliders(chatting: Chatting) -> None:
    def visit(browser: Browser) -> None:
        assert re.findall(r'type="range" data-told name="([^"]+)"', browser.get(PAGE).text) == [
            "weight.right",
            "weight.short",
        ]
        first = say(browser, "<b>Hello</b> \u202egone", right=30, short=10)
        assert first.status_code == 200
        assert "weigher/1 · right 75 %, short 25 %" in first.text
        assert "&lt;b&gt;Hello&lt;/b&gt;" in first.text
        again = say(browser, "And now?", said=said_in(first.text), right=0, short=10)
        assert "right 0 %, short 100 %" in again.text

    await chatting.browse(visit, "rate")
    asked = [[(each.role, each.text) for each in ask.messages] for ask in chatting.policy.asked]
    assert asked[0] == [("system", "Preference: right 75, short 25."), ("user", "<b>Hello</b> \u202egone")]
    assert [role for role, _ in asked[1]] == ["system", "user", "assistant", "user"]
    assert asked[1][1:2] == asked[0][1:]
    assert not SESSIONS.latest(chatting.db), "nothing is recorded"
    made = [each for each in KEYS.latest(chatting.db) if each.scopes == ("act",)]
    assert [each.name for each in made] == ["ann at the console"], "one key for all requests of a person"


async def test_answers_on_record_are_judged_by_thumb_and_stars(sqlite_url: str) -> None:
    recorder = open_recorder(sqlite_url)

    def visit(browser: Browser) -> None:
        assert 'name="record" checked' in browser.get("/endpoints/plain/chat").text
        page = "/endpoints/plain/chat"
        kept = browser.submit(page, page=page, text="Hello", said="", record="on").text
        assert 'aria-label="4 of 5 stars">' in kept
        for judge in ("1 thumb down", "1 stars 4"):
            judged = browser.submit(page, page=page, said=said_in(kept), judge=judge, text="And then", record="on")
            assert judged.status_code == 200, judged.text
            assert "Given:" in judged.text
            assert ">And then</textarea>" in judged.text, "what is being written stays"
        for judge in ("0 thumb up", "1 stars 6", "9 stars 4", "nonsense"):
            assert browser.submit(page, page=page, said=said_in(kept), judge=judge).status_code == 400
        unkept = browser.submit(page, page=page, text="Hello", said="").text
        assert "Judge answer" not in unkept
        assert browser.submit(page, page=page, said=said_in(unkept), judge="1 thumb up").status_code == 400

    async with Chatting(sqlite_url, recorder) as chatting:
        await chatting.browse(visit, "rate")
        given = [one for _, one in FEEDBACK.recent(chatting.db, before=None, limit=10)]
    assert sorted((one.kind, one.value, one.source) for one in given) == [
        ("stars", 0.8, "human"),
        ("thumb", 0.0, "human"),
    ]
    assert len({(one.trajectory, one.call) for one in given}) == 1
    assert all(one.call for one in given), "about this answer"


async def test_a_policy_without_objectives_has_no_sliders(chatting: Chatting) -> None:
    page = "/endpoints/plain/chat"

    def visit(browser: Browser) -> None:
        assert 'type="range"' not in browser.get(page).text
        assert say(browser, "1 + 1", page=page).status_code == 200
        refused = say(browser, "1 + 1", page=page, right=1)
        assert refused.status_code == 400
        assert "This policy reads no preference" in refused.text

    await chatting.browse(visit)


async def test_what_is_wrong_is_said_and_what_was_written_is_kept(chatting: Chatting) -> None:
    def visit(browser: Browser) -> None:
        nothing = say(browser, "Hello", right=0, short=0)
        assert (nothing.status_code, "One objective at least must count." in nothing.text) == (400, True)
        assert ">Hello</textarea>" in nothing.text
        assert "Write something first." in say(browser, " ", right=1).text
        assert say(browser, "Hello", right=101).status_code == 400
        assert "Begin anew" in say(browser, "Hello", said="[1]", right=1).text
        assert "is not served now" in browser.get("/endpoints/nobody/chat").text
        chatting.front("plain", "127.0.0.1:9")
        down = browser.get("/endpoints/plain/chat")
        assert (down.status_code, "no answer" in down.text) == (503, True)

    await chatting.browse(visit)
    assert chatting.policy.asked == []


async def test_whoever_only_looks_does_not_chat(chatting: Chatting) -> None:
    def visit(browser: Browser) -> None:
        assert browser.get(PAGE).status_code == 403

    await chatting.browse(visit, "view")
