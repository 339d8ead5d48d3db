"""Who may see and do what: keys, roles, sessions, tokens of forms, other sites."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loomrl.config import HubConfig
from loomrl.console.app import console_app, open_console
from loomrl.console.page import local
from loomrl.console.session import IDLE_S, TRIES
from loomrl.console.source import RecordSource, open_source
from loomrl.errors import ServeError
from loomrl.hub.open import open_endpoint_hub
from loomrl.store.endpoints import Arm, set_endpoint, show_endpoint
from loomrl.store.events import EVENTS
from loomrl.store.feedback import feedback_of
from loomrl.store.keys import KEYS, revoke_key
from loomrl.store.releases import RELEASES
from loomrl.types import Source as Origin
from tests.console.console_samples import asked, queued, released_verdict, rollouts, talk
from tests.console.console_support import SITE, Browser, console, key
from tests.release.release_support import ENDPOINT, prepare, released


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[RecordSource, Browser]]:
    with console(f"sqlite:///{tmp_path}/loom.db") as (source, app):
        yield source, Browser(app)


def test_on_this_machine_without_keys_it_is_open_and_says_so(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    assert "Open</b> to everybody on this machine" in browser.get("/runs").text
    assert browser.get("/keys").status_code == 200
    plain, _ = key(source, "view")
    browser.app.state.sessions.forget()  # a second later
    assert browser.get("/runs").status_code == 401
    browser.sign_in(plain)
    assert browser.get("/runs").status_code == 200
    assert browser.get("/keys").status_code == 403


def test_beyond_loopback_it_is_never_open_without_a_key(tmp_path: Path) -> None:
    source = open_source(f"sqlite:///{tmp_path}/loom.db")
    try:
        with pytest.raises(ServeError, match="loomrl keys create"):
            open_console(source, "0.0.0.0", 0, now=time.time())
        key(source, "act", "feedback", "record")  # keys of programs are none for people
        with pytest.raises(ServeError, match="loomrl keys create"):
            open_console(source, "0.0.0.0", 0, now=time.time())
        browser = Browser(console_app(source, site=SITE, is_local=False))
        assert browser.get("/runs").status_code == 401
    finally:
        source.close()


def test_a_key_of_a_program_does_not_sign_in(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    key(source, "view")
    plain, _ = key(source, "act", "record")
    answer = browser.sign_in(plain)
    assert answer.status_code == 403
    assert "needs the scope view" in answer.text


def test_the_cookie_is_strict_and_changes_at_sign_in(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    plain, _ = key(source, "admin")
    browser.get("/sign-in")
    before = browser.cookies["loomrl_console"]
    answer = browser.sign_in(plain)
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 303
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert browser.cookies["loomrl_console"] != before
    old = Browser(browser.app)
    old.cookies.set("loomrl_console", before)
    assert old.get("/runs").status_code == 401


@pytest.mark.parametrize(
    ("scope", "status"),
    [
        ("view", (200, 403, 403, 403)),
        ("rate", (200, 404, 403, 403)),
        ("operate", (200, 404, 404, 403)),
        ("admin", (200, 404, 404, 200)),
    ],
)
def test_each_role_may_do_what_those_before_it_may(
    opened: tuple[RecordSource, Browser], scope: str, status: tuple[int, ...]
) -> None:
    source, browser = opened
    plain, _ = key(source, scope)
    browser.sign_in(plain)
    token = {"csrf": browser.token("/audit")}
    found = (
        browser.get("/audit").status_code,
        browser.post("/trajectories/nope", data={**token, "kind": "thumb up"}).status_code,
        browser.post("/monitor/free", data={**token, "session": "nope"}).status_code,
        browser.get("/keys").status_code,
    )
    assert found == status


def test_forged_and_missing_tokens_change_nothing(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    browser.get("/keys")
    for sent in ({}, {"csrf": ""}, {"csrf": "0" * 32}):
        answer = browser.post("/keys", data={**sent, "name": "eve", "scope-admin": "on"})
        assert answer.status_code == 403
    other = Browser(browser.app)
    answer = browser.post("/keys", data={"csrf": other.token("/keys"), "name": "eve", "scope-admin": "on"})
    assert answer.status_code == 403
    assert EVENTS.recent(source.db, kind="key") == []
    assert browser.submit("/keys", page="/keys", name="bob", **{"scope-view": "on"}).status_code == 200
    assert len(EVENTS.recent(source.db, kind="key")) == 1


def test_pages_of_other_sites_and_names_are_refused(opened: tuple[RecordSource, Browser]) -> None:
    _, browser = opened
    assert browser.get("/runs", headers={"host": "evil.example"}).status_code == 421
    assert browser.get("/runs", headers={"origin": "https://evil.example"}).status_code == 403
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    assert browser.get("/runs", headers=foreign).status_code == 403
    assert browser.post("/keys", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    big = browser.post("/keys", content=b"x" * 300_000, headers={"content-type": "application/x-www-form-urlencoded"})
    assert big.status_code == 413


def test_a_link_from_another_site_is_followed_once_more(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    key(source, "view")
    visit = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    answer = browser.get("/runs/x", headers=visit)
    assert answer.status_code == 200
    assert 'http-equiv="refresh"' in answer.text, "the browser sends its strict cookie with the second request"
    assert "set-cookie" not in answer.headers, "which this answer must not replace"


def test_sessions_end_with_time_with_their_key_and_by_hand(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    plain, id = key(source, "view")
    sessions = browser.app.state.sessions
    browser.sign_in(plain)
    sessions.clock = lambda: time.time() + IDLE_S + 1
    answer = browser.get("/runs?kind=train")
    assert answer.status_code == 401
    assert "Your session has ended" in answer.text
    assert "/runs?kind=train" in answer.text, "it goes on there"
    assert browser.get("/runs/x/metrics.json", headers={"accept": "application/json"}).json()["error"]
    sessions.clock = time.time
    browser.sign_in(plain)
    assert browser.get("/runs").status_code == 200
    browser.submit("/sign-out", page="/runs")
    assert browser.get("/runs").status_code == 401
    browser.sign_in(plain)
    revoke_key(source.db, id, at=time.time())
    key(source, "view")
    assert "revoked" in browser.get("/runs").text


def test_wrong_keys_are_slowed_down_and_never_keep_a_right_one_out(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    plain, _ = key(source, "view")
    wrong = f"loom-{'0' * 12}-{'0' * 48}"
    for _ in range(TRIES):
        assert browser.sign_in(wrong).status_code == 401
    answer = browser.sign_in(wrong)
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "60"
    assert browser.sign_in(plain).status_code == 303, "others at this address, as behind a proxy, are not locked out"
    now = time.time()
    browser.app.state.sessions.clock = lambda: now + 61
    assert browser.sign_in(wrong).status_code == 401


def test_only_addresses_of_this_site_come_next() -> None:
    assert local("/runs?kind=train") == "/runs?kind=train"
    for elsewhere in ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", ""):
        assert local(elsewhere) == "/"


def test_decisions_on_a_release_need_a_reason_and_stay_on_record(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    prepare(source.db)
    release = released(source.db, approvals=[0.5], approvers=["bob"]).row.release
    plain, _ = key(source, "operate")
    browser.sign_in(plain)
    page = f"/releases/{release}"
    assert browser.submit(page, page=page, word="pause", why=" ").status_code == 400
    refused = browser.submit(page, page=page, word="approve", why="fine")
    assert refused.status_code == 400
    assert "may not approve" in refused.text, "ann is none of the plan's approvers"
    assert browser.submit(page, page=page, word="nonsense", why="x").status_code == 400
    assert browser.submit(page, page=page, word="abort", why="wrong version").status_code == 303
    newest = RELEASES.newest(source.db, endpoint=ENDPOINT)
    assert newest is not None
    assert (newest.state, newest.who) == ("aborted", "ann")
    assert "wrong version" in newest.reason
    assert "wrong version" in browser.get(page).text


def test_feedback_is_stored_under_a_name_and_without_secrets(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    from loomrl.hub import open_hub
    from loomrl.types import Message, Reward, Turn

    plain, _ = key(source, "rate")
    browser.sign_in(plain)
    set_endpoint(source.db, "support", [Arm(name="stable", policy="x")], at=1.0)
    session = talk("session", (Turn((Message("user", "Hi"),), "Hello", Reward()),), source=Origin.PRODUCTION)
    with open_endpoint_hub(source.url, "support", HubConfig()) as hub:
        hub.append([session])
    with open_hub(source.url, HubConfig()) as hub:
        hub.append(rollouts()[:4])
    source._looked = -1e9  # a hub has come
    said = {"kind": "correction", "text": "Write to bob@example.org", "comment": "rude"}
    for id in ("session", "math-1/task-0/1"):
        page = f"/trajectories/{id}"
        assert browser.submit(page, page=page, kind="correction", text=" ").status_code == 400
        assert browser.submit(page, page=page, kind="nonsense").status_code == 400
        assert browser.submit(page, page=page, **said).status_code == 303
        (one,) = feedback_of(source.db, [id])
        assert (one.kind, one.source, one.comment) == ("correction", "human", "rude")
        assert "bob@example.org" not in one.data["text"]
    for id in ("session", "math-1/task-0/1"):
        page = f"/trajectories/{id}"
        assert browser.submit(page, page=page, kind="stars 4").status_code == 303
        assert [one.value for one in feedback_of(source.db, [id]) if one.kind == "stars"] == [0.8]
        for shown in (page, "/feedback"):
            assert 'aria-label="4 of 5 stars">★★★★☆</span>' in browser.get(shown).text
    better = {"better": "math-1/task-0/1", "worse": "math-1/task-0/0"}
    assert browser.submit("/feedback/choose", page="/feedback", **better).status_code == 303
    chosen = [one for one in feedback_of(source.db, list(better.values())) if one.kind == "choice"]
    assert sorted((one.trajectory, one.value) for one in chosen) == [("math-1/task-0/0", 0.0), ("math-1/task-0/1", 1.0)]


def test_keys_are_made_shown_once_and_revoked(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    made = browser.submit("/keys", page="/keys", name="bob", days="2", **{"scope-rate": "on"})
    plain = made.text.split("shown this once: <code>")[1].split("<")[0]
    id = plain.split("-")[1]
    assert plain not in browser.get("/sign-in").text
    browser.sign_in(plain)
    admin, _ = key(source, "admin")
    browser.sign_in(admin)
    assert browser.submit("/keys/revoke", page="/keys", id=id).status_code == 303
    stored = KEYS.find(source.db, id)
    assert stored is not None
    assert not stored.holds(time.time())
    assert browser.submit("/keys/revoke", page="/keys", id="nope").status_code == 404


def test_what_can_be_done_with_a_record_is_on_its_page_until_it_is_done(opened: tuple[RecordSource, Browser]) -> None:
    source, browser = opened
    asked(source.db)
    released_verdict(source.db)
    queued(source.db)
    plain, _ = key(source, "view")
    ann, _ = key(source, "operate")
    viewer = Browser(browser.app)
    viewer.sign_in(plain)
    browser.sign_in(ann)
    for page, word, fields in (
        ("/ab/tone", "stop", {"reason": "enough", "keep": "warm"}),
        ("/verdicts/verdict-1", "approve", {"comment": "good"}),
        ("/trainings/job-1", "cancel", {"why": "enough"}),
    ):
        path = f"{page}/{word}"
        assert f'action="{path}"' in browser.get(page).text
        assert f'action="{path}"' not in viewer.get(page).text
        assert viewer.submit(path, page="/audit", **fields).status_code == 403
        if word != "approve":
            assert "Say why" in browser.submit(path, page=page, **dict.fromkeys(fields, " ")).text
        assert browser.submit(path, page=page, **fields).headers["location"] == page
        assert f'action="{path}"' not in browser.get(page).text, "it is done"
    assert "enough (ann)" in browser.get("/ab/tone").text
    assert show_endpoint(source.db, "search").stable.policy == "math-1/40"
    answer = {"id": "question-0", "choice": "yes"}
    assert browser.submit("/feedback/answer", page="/feedback", **answer).status_code == 303
    assert browser.submit("/feedback/answer", page="/feedback", **answer).status_code == 409
    assert browser.post("/runs", data={}).status_code == 405
