"""Pages of other sites: whatever a browser can be made to send, nothing is stored, handed out or reset by it."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from atropos_support import ENVIRONMENT, TRAINER, group, serving
from hub_samples import served

from loomrl.config import HubConfig
from loomrl.http.listen import Door
from loomrl.http.site import site_of
from loomrl.hub import open_hub
from loomrl.hub.http import create_app

pytestmark = pytest.mark.system


@pytest.fixture
def client(sqlite_url: str) -> Iterator[httpx.Client]:
    """Of a hub with a trainer, an environment and a batch that is ready."""
    with serving(sqlite_url) as client:
        client.post("/register", json=TRAINER)
        client.get("/batch")
        client.post("/register-env", json=ENVIRONMENT)
        client.post("/scored_data", json=group(0, env_id=0))
        yield client


STRANGE_POSTS: list[tuple[dict[str, str], int]] = [
    ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
    ({"origin": "http://127.0.0.1:3000"}, 403),
    ({"origin": "null"}, 403),
    ({"sec-fetch-site": "same-site"}, 403),
    ({"host": "evil.example"}, 421),
    ({"host": "evil.example", "origin": "http://evil.example", "sec-fetch-site": "same-origin"}, 421),
    ({"host": "localhost.evil.example:8000"}, 421),
    ({"host": ""}, 421),
    ({"content-type": "text/plain;charset=UTF-8"}, 415),
    ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ({"content-type": "multipart/form-data; boundary=x"}, 415),
]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/scored_data", group(100, env_id=0)),
        ("/register", {**TRAINER, "wandb_project": "other"}),
    ],
)
def test_post_that_a_page_of_another_site_could_send_changes_nothing(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    before = stored(client)
    for headers, status in STRANGE_POSTS:
        answer = client.post(path, json=body, headers={"content-type": "application/json", **headers})
        assert (answer.status_code, answer.json()["error"]) == (status, "Refused"), headers
    assert stored(client) == before
    assert client.post(path, json=body).status_code == 200
    assert stored(client) != before


def stored(client: httpx.Client) -> list[object]:
    hub = client.post("/v2/stats").json()["environments"]["atropos/math_0"]
    return [client.get("/status").json(), client.get("/wandb_info").json(), hub["trajectories"]]


STRANGE_GETS: list[dict[str, str]] = [
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    {"referer": "https://evil.example/page"},
    {"origin": "https://evil.example"},
    {"host": "evil.example"},
]


def test_get_that_a_link_or_an_image_could_send_takes_and_resets_nothing(client: httpx.Client) -> None:
    for path in ("/batch", "/reset_data"):
        for headers in STRANGE_GETS:
            assert client.get(path, headers=headers).status_code in (403, 421), headers
    assert client.get("/status").json() == {"current_step": 0, "queue_size": 1}
    assert client.get("/batch").json()["batch"] is not None


def test_programs_and_whoever_looks_at_the_status_are_let_in(client: httpx.Client) -> None:
    port = client.base_url.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "127.0.0.53", "LOCALHOST."):
        assert client.get("/status", headers={"host": host}).status_code == 200
    visit = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/status", headers=visit).status_code == 200
    own = {"origin": f"http://127.0.0.1:{port}", "sec-fetch-site": "same-origin"}
    assert client.post("/v2/stats", headers=own).status_code == 200


@pytest.mark.parametrize(
    ("token", "allowed", "answers"),
    [
        (None, (), {"hub": 421, "10.0.0.7": 421, "127.0.0.1": 200}),
        (None, ("Hub",), {"hub": 200, "hub:8000": 200, "other": 421}),
        ("secret", (), {"hub": 200, "10.0.0.7:8000": 200}),
        ("secret", ("hub",), {"hub": 200, "other": 421}),
    ],
)
def test_a_server_answers_to_its_own_names_and_with_a_token_to_any_unless_some_are_given(
    sqlite_url: str, token: str | None, allowed: tuple[str, ...], answers: dict[str, int]
) -> None:
    site = site_of(Door("127.0.0.1", 8000, token, allowed, ()))
    with open_hub(sqlite_url, HubConfig()) as hub, served(create_app(hub, site=site, token=token)) as url:
        for host, status in answers.items():
            answer = httpx.get(f"{url}/v2/health", headers={"host": host})
            assert answer.status_code == status, host
            assert status == 200 or "--allow-host" in answer.json()["message"]
