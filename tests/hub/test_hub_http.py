"""The hub's door: who may enter, how much fits through, and what an error looks like."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import zstandard
from hub_samples import Clock, attempt, attempts, math_of, served, take
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from loomrl.config import HubConfig
from loomrl.errors import HubError, LeaseLost, ServeError
from loomrl.http.listen import is_loopback, open_door
from loomrl.hub import Hub, open_hub
from loomrl.hub.client import HubClient
from loomrl.hub.codec import encode
from loomrl.hub.http import create_app

pytestmark = pytest.mark.system

LIMIT = 200_000


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


@pytest.fixture
def hub(sqlite_url: str) -> Iterator[Hub]:
    with open_hub(sqlite_url, HubConfig()) as hub:
        yield hub


@pytest.fixture
def http(hub: Hub) -> Iterator[httpx.Client]:
    """A client that knows the token, of a server that takes small bodies."""
    app = create_app(hub, token="secret", extra_routes=[Route("/echo", echo, methods=["POST"])], max_bytes=LIMIT)
    headers = {"authorization": "Bearer secret"}
    with served(app) as url, httpx.Client(base_url=url, headers=headers, trust_env=False) as client:
        yield client


def test_without_the_token_nothing_is_read_or_stored_and_only_health_is_told(hub: Hub, http: httpx.Client) -> None:
    del http.headers["authorization"]
    for header in ("", "Bearer wrong", "Basic secret", "Bearer sécret", "Bearer secret2"):
        headers = {"authorization": header.encode()} if header else {}
        for path in ("/v2/append", "/v2/read", "/echo", "/nowhere"):
            answer = http.post(path, content=encode(attempt("a")), headers=headers)
            assert answer.status_code == 401
            assert "Authorization: Bearer" in answer.json()["message"]
    assert hub.stats().environments == {}
    assert http.get("/v2/health").json() == {"status": "ok"}


def test_bodies_may_be_compressed(http: httpx.Client) -> None:
    body = b"".join(map(encode, attempts("g")))
    for encoding, packed in (("identity", body), ("gzip", gzip.compress(body)), ("zstd", zstandard.compress(body))):
        answer = http.post("/v2/append", content=packed, headers={"content-encoding": encoding})
        assert answer.json() == {"cursors": [1, 2]}
    assert http.post("/echo", content=gzip.compress(b"hi"), headers={"content-encoding": "gzip"}).text == "hi"


def test_body_that_is_too_large_or_cannot_be_unpacked_is_refused(hub: Hub, http: httpx.Client) -> None:
    body, bomb = b"x" * (LIMIT + 1), bytes(64 << 20)
    for encoding, content, status, said in (
        ("identity", body, 413, f"at most {LIMIT} bytes"),
        ("identity", iter([body[:1000], body[1000:]]), 413, f"at most {LIMIT} bytes"),
        ("gzip", gzip.compress(bomb), 413, f"at most {LIMIT} bytes"),
        ("zstd", zstandard.compress(bomb), 413, f"at most {LIMIT} bytes"),
        ("gzip", b"no gzip", 400, "gzip"),
        ("gzip", gzip.compress(b"cut" * 500, mtime=0)[:-9], 400, "gzip"),
        ("zstd", b"no zstd", 400, "zstd"),
        ("br", b"", 415, "br"),
    ):
        answer = http.post("/v2/append", content=content, headers={"content-encoding": encoding})
        assert (answer.status_code, said in answer.json()["message"]) == (status, True), answer.text
    assert hub.stats().environments == {}


def test_corrupt_payload_is_refused_by_number_and_nothing_of_the_body_is_stored(hub: Hub, http: httpx.Client) -> None:
    good = encode(attempt("a"))
    answer = http.post("/v2/append", content=good + good[:-1] + b"!")
    assert (answer.status_code, answer.json()["error"]) == (400, "CorruptPayload")
    assert "payload 2 of 2" in answer.json()["message"]
    assert hub.stats().environments == {}


def test_errors_have_the_status_of_their_kind(http: httpx.Client) -> None:
    http.post("/v2/append", content=encode(attempt("a")))
    changed = http.post("/v2/append", content=encode(attempt("a", finished_at=1.0)))
    assert (changed.status_code, changed.json()["error"]) == (409, "Conflict")
    lost = http.post("/v2/ack", json={"lease_id": "x", "version": 1})
    assert (lost.status_code, lost.json()["error"]) == (410, "LeaseLost")
    wrong = http.post("/v2/ack", json={"lease_id": "x", "version": "one"})
    assert wrong.status_code == 422
    assert "Expected `int`, got `str` - at `$.version`" in wrong.json()["message"]
    assert "unknown field `lease`" in http.post("/v2/renew", json={"lease": "x"}).json()["message"]
    assert http.post("/v2/renew", content=b"\xff{").status_code == 422
    assert http.post("/v2/nothing").status_code == 404
    assert http.get("/v2/append").status_code == 405


def test_client_without_the_token_learns_why(http: httpx.Client) -> None:
    with HubClient(str(http.base_url), token="guess") as client, pytest.raises(HubError, match="wants its token"):
        client.stats()


def test_lease_whose_answer_was_lost_until_it_expired_is_asked_for_anew(sqlite_url: str) -> None:
    clock = Clock()
    with open_hub(sqlite_url, HubConfig(lease_s=10), clock=clock) as hub, served(create_app(hub)) as url:
        hub.append(attempts("g"))
        take(hub, 1, lease_id="lost")
        clock.now += 11
        names = iter(["lost", "fresh"])
        with HubClient(url, new_id=lambda: next(names)) as client:
            assert take(client, 1).id == "fresh"
            with pytest.raises(LeaseLost):
                take(client, 1, lease_id="lost")


def test_client_waits_for_a_hub_that_starts_later_and_gives_up_naming_it(hub: Hub, unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    with HubClient(url, patience_s=0.2) as client, pytest.raises(HubError, match=rf"{url}.*Is the hub serving"):
        client.stats()


def test_address_that_others_can_reach_needs_a_token() -> None:
    with pytest.raises(ServeError, match=r"'0\.0\.0\.0' can be reached.*token"):
        open_door("0.0.0.0", 0)
    assert [host for host in ("127.0.0.1", "::1", "localhost", "::", "10.0.0.1", "hub") if is_loopback(host)] == [
        "127.0.0.1",
        "::1",
        "localhost",
    ]


def test_damaged_group_is_released_as_corrupt_and_the_rest_is_served(sqlite_url: str, tmp_path: Path) -> None:
    import sqlite3

    with open_hub(sqlite_url, HubConfig()) as hub:
        hub.append([*attempts("bad"), *attempts("good")])
        with sqlite3.connect(tmp_path / "loom.db") as raw:
            raw.execute("UPDATE trajectories SET payload = substr(payload, 1, 100) WHERE id = 'bad/1'")
        raw.close()
        lease = take(hub, 2)
        assert [group.id for group in lease.groups] == ["good"]
        assert math_of(hub).released == {"corrupt": 1}
