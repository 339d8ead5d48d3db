import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from atropos_support import ENVIRONMENT, TRAINER, first_tokens, group, serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('atropos')}/loom.db") as client:
        yield client


@pytest.fixture
def client(server: httpx.Client) -> httpx.Client:
    """Of a hub that has forgotten everything."""
    get(server, "/status")
    server.get("/reset_data").raise_for_status()
    return server


def start(client: httpx.Client, *environments: dict[str, Any], **trainer: Any) -> list[int]:
    """A trainer that polls, and its environments' ids."""
    assert isinstance(post(client, "/register", {**TRAINER, **trainer})["uuid"], int)
    assert poll(client) is None
    return [post(client, "/register-env", {**ENVIRONMENT, **environment})["env_id"] for environment in environments]


def post(client: httpx.Client, path: str, body: Any, **headers: str) -> Any:
    return client.post(path, json=body, headers=headers).raise_for_status().json()


def offer(client: httpx.Client, *starts: int, **more: Any) -> Any:
    """The answer to the last of these groups."""
    return [post(client, "/scored_data", group(start, **more)) for start in starts][-1]


def poll(client: httpx.Client) -> Any:
    return get(client, "/batch")["batch"]


def get(client: httpx.Client, path: str) -> Any:
    return client.get(path).raise_for_status().json()


def status_of(client: httpx.Client, env_id: int) -> Any:
    return client.request("GET", "/status-env", json={"env_id": env_id}).raise_for_status().json()


def test_whole_exchange_between_environment_and_trainer(sqlite_url: str) -> None:
    with serving(sqlite_url) as client:
        assert "message" in get(client, "/")
        assert get(client, "/info") == {"batch_size": -1, "max_token_len": -1}
        assert get(client, "/wandb_info") == {"group": None, "project": None}
        assert get(client, "/batch")["status"] == "error"
        assert get(client, "/batch")["batch"] == []
        assert post(client, "/register-env", ENVIRONMENT) == {"status": "wait for trainer to start"}
        assert isinstance(post(client, "/register", TRAINER)["uuid"], int)
        assert post(client, "/register-env", ENVIRONMENT) == {"status": "wait for trainer to start"}
        assert get(client, "/batch") == {"batch": None}
        assert post(client, "/register-env", ENVIRONMENT) == {
            "status": "success",
            "env_id": 0,
            "wandb_name": "math_0",
            "checkpoint_dir": "/checkpoints",
            "starting_step": 0,
            "checkpoint_interval": 10,
            "num_steps": 100,
        }
        assert get(client, "/info") == {"batch_size": 4, "max_token_len": 512}
        assert get(client, "/wandb_info") == {"group": "group", "project": "project"}
        assert offer(client, 0, env_id=0) == {"status": "received"}
        assert get(client, "/status") == {"current_step": 0, "queue_size": 1}
        assert client.head("/batch").status_code == 405, "it takes no batch"
        assert first_tokens(poll(client)) == [0]
        assert poll(client) is None
        assert get(client, "/status") == {"current_step": 1, "queue_size": 0}
        assert post(client, "/disconnect-env", {"env_id": 0}) == {"status": "success"}


def test_environments_of_one_name_are_numbered_and_an_unknown_one_is_a_failure_with_status_200(
    client: httpx.Client,
) -> None:
    assert start(client, {}, {}) == [0, 1]
    assert post(client, "/register-env", ENVIRONMENT)["wandb_name"] == "math_2"
    assert post(client, "/disconnect-env", {"env_id": 7})["status"] == "failure"
    assert "env_id=7" in status_of(client, 7)["error"]


FINITE = st.floats(allow_nan=False, allow_infinity=False)
TOKEN = st.integers(0, 2**31 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | FINITE | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)
MAP = st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=3)
MESSAGE = st.builds(lambda more, content: {**more, "role": "user", "content": content}, MAP, JSON)


@st.composite
def scored_data(draw: st.DrawFn) -> dict[str, Any]:
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    count = len(lengths)

    def aligned(element: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.tuples(*(st.lists(element, min_size=n, max_size=n) for n in lengths)).map(list)

    def rows(row: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.none() | st.just([]) | st.lists(row, min_size=count, max_size=count)

    data: dict[str, Any] = {
        "tokens": draw(aligned(TOKEN)),
        "scores": draw(st.lists(FINITE, min_size=count, max_size=count)),
    }
    trained = draw(aligned(st.booleans()))
    usual = [
        [id if on else -100 for id, on in zip(ids, flags, strict=True)]
        for ids, flags in zip(data["tokens"], trained, strict=True)
    ]
    data["masks"] = draw(st.just(usual) | aligned(st.integers(-100, 100)))
    optional = {
        "inference_logprobs": st.none()
        | st.just([])
        | aligned(FINITE | st.floats(width=32, max_value=0, min_value=-50)),
        "advantages": rows(st.lists(FINITE, max_size=4)),
        "ref_logprobs": rows(st.lists(FINITE, max_size=4)),
        "messages": rows(st.lists(MESSAGE, max_size=2)),
        "overrides": rows(MAP),
        "distill_token_ids": rows(st.lists(st.lists(TOKEN, max_size=3), max_size=3)),
        "distill_logprobs": rows(st.lists(st.lists(FINITE, max_size=3), max_size=3)),
        "generation_params": st.none() | MAP,
        "group_overrides": st.none() | MAP,
        "images": JSON,
        "env_id": st.none() | st.just(99),
    }
    return data | draw(st.fixed_dictionaries({}, optional=optional))


@given(data=scored_data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_trainer_gets_exactly_what_the_environment_posted(client: httpx.Client, data: dict[str, Any]) -> None:
    client.get("/reset_data")
    start(client, batch_size=1)
    assert post(client, "/scored_data", data) == {"status": "received"}
    (returned,) = poll(client)
    fields = "tokens masks scores advantages ref_logprobs messages generation_params inference_logprobs overrides"
    more = "group_overrides images env_id distill_token_ids distill_logprobs"
    assert list(returned) == [*fields.split(), *more.split()]
    assert returned == {name: data.get(name) for name in returned}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"tokens": None}, "tokens"),
        ({"tokens": []}, "tokens"),
        ({"tokens": [[1, 2], "x"]}, "tokens"),
        ({"tokens": [[2**31]] * 4}, "tokens"),
        ({"masks": [[1]] * 3}, "masks has 3 rows"),
        ({"masks": [[1]] * 4}, "masks[0] has 1 entries"),
        ({"scores": [0.0]}, "scores has 1 rows"),
        ({"scores": [0.0, 1.0, 2.0, float("nan")]}, "scores"),
        ({"inference_logprobs": [[0.0]] * 4}, "inference_logprobs[0]"),
        ({"inference_logprobs": [[float("-inf")] * 6] * 4}, "inference_logprobs"),
        ({"advantages": [[0.0]]}, "advantages has 1 rows"),
        ({"messages": [[{"role": "user"}]] * 4}, "'role' and 'content'"),
        ({"generation_params": {"temperature": float("nan")}}, "generation_params"),
        ({"images": 2**70}, "images"),
        ({"env_id": "first"}, "env_id"),
    ],
)
def test_malformed_group_is_refused_with_its_place_and_not_stored(
    client: httpx.Client, change: dict[str, Any], where: str
) -> None:
    start(client, {"group_size": 8})
    body = json.dumps({**group(0, env_id=0), **change})
    for path, content in (("/scored_data", body), ("/scored_data_list", f"[{json.dumps(group(9))}, {body}]")):
        answer = client.post(path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert where in json.dumps(answer.json()["detail"])
    assert get(client, "/status")["queue_size"] == 0
    assert offer(client, 0, size=2, env_id=0)["buffer_size"] == 2


def test_what_is_no_group_is_refused(client: httpx.Client) -> None:
    for body in (b"", b"[", b"[]", b"NaN", b'{"tokens": [[1]]}', b"[" * 5000):
        assert [client.post(path, content=body).status_code for path in ("/scored_data", "/register")] == [422, 422]


def test_sizes_that_do_not_divide_the_largest_do_not_starve(client: httpx.Client) -> None:
    start(client, batch_size=8)
    for number, size in enumerate((5, 8, 3, 8, 4, 4)):
        post(client, "/scored_data", group(number * 100, size=size))
    assert [first_tokens(poll(client)) for _ in range(4)] == [[0, 200], [100], [300], [400, 500]]


def test_list_counts_what_it_queued_and_what_it_buffered(client: httpx.Client) -> None:
    start(client, {})
    groups = [group(0, env_id=0), group(100, size=1, env_id=0), group(200, size=2, env_id=0)]
    assert post(client, "/scored_data_list", groups) == {
        "status": "received",
        "groups_processed": 3,
        "buffered": 2,
        "last_buffer_size": 3,
    }
    assert post(client, "/scored_data_list", [group(300, env_id=0)]) == {"status": "received", "groups_processed": 1}
    assert get(client, "/status")["queue_size"] == 2


def test_small_groups_are_held_until_they_make_up_a_whole_one(sqlite_url: str) -> None:
    with serving(sqlite_url) as client:
        start(client, {"group_size": 4}, batch_size=2)
        assert offer(client, 0, size=2, env_id=0) == {"status": "buffered", "buffer_size": 2}
        assert poll(client) is None
    with serving(sqlite_url) as client:
        assert offer(client, 100, size=2, env_id=0) == {"status": "buffered", "buffer_size": 0}
        assert [first_tokens(poll(client)) for _ in range(2)] == [[0], [100]]


def test_held_group_is_let_go_when_its_environment_disconnects(client: httpx.Client) -> None:
    start(client, {}, batch_size=2)
    offer(client, 0, size=2, env_id=0)
    post(client, "/disconnect-env", {"env_id": 0})
    assert first_tokens(poll(client)) == [0]


def test_groups_larger_than_their_environment_says_are_queued(client: httpx.Client) -> None:
    start(client, {"group_size": 2})
    assert offer(client, 0, size=4, env_id=0) == {"status": "received"}
    assert status_of(client, 0)["max_group_size"] == 4


def test_equal_groups_that_were_answered_are_separate_groups(client: httpx.Client) -> None:
    start(client)
    for _ in range(3):
        offer(client, 0)
    assert get(client, "/status")["queue_size"] == 3
    assert post(client, "/scored_data_list", [group(0)] * 2)["groups_processed"] == 2
    assert get(client, "/status")["queue_size"] == 5


def test_post_repeated_with_its_key_is_stored_once(store_url: str) -> None:
    with serving(store_url) as client:
        start(client, {})
        first = post(client, "/scored_data", group(0, size=2, env_id=0), **{"idempotency-key": "k"})
        again = post(client, "/scored_data", group(0, size=2, env_id=0), **{"idempotency-key": "k"})
        assert first == again == {"status": "buffered", "buffer_size": 2}
        other = client.post("/scored_data", json=group(9), headers={"idempotency-key": "k"})
        assert (other.status_code, "'k'" in other.text) == (409, True)
    with serving(store_url) as client:
        post(client, "/scored_data", group(0, size=2, env_id=0), **{"idempotency-key": "k"})
        assert offer(client, 0, size=2, env_id=0)["buffer_size"] == 0


def test_batch_is_acked_by_the_first_poll_after_a_null(client: httpx.Client) -> None:
    start(client)
    offer(client, 0)
    assert first_tokens(poll(client)) == [0]
    assert poll(client) is None
    assert poll(client) is None  # acked
    post(client, "/register", TRAINER)
    assert poll(client) is None


def test_batches_a_trainer_still_collects_come_back_when_it_dies(client: httpx.Client) -> None:
    start(client)
    offer(client, *range(0, 300, 100))
    assert [first_tokens(poll(client)) for _ in range(2)] == [[0], [100]]
    post(client, "/register", TRAINER)
    assert [first_tokens(poll(client)) for _ in range(3)] == [[0], [100], [200]]
    assert poll(client) is None
    assert get(client, "/status") == {"current_step": 3, "queue_size": 0}


def test_batch_of_a_trainer_that_fell_silent_comes_back_when_its_lease_is_over(sqlite_url: str) -> None:
    with serving(sqlite_url, lease_s=0.3) as client:
        start(client)
        offer(client, 0)
        assert first_tokens(poll(client)) == [0]
        assert poll(client) is None
        deadline = time.monotonic() + 10
        while get(client, "/status")["queue_size"] == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert first_tokens(poll(client)) == [0]
        assert get(client, "/status")["current_step"] == 1


def test_trainer_that_is_never_told_null_is_told_so_after_eight_batches(client: httpx.Client) -> None:
    start(client)
    offer(client, *range(0, 1000, 100))
    polled = [poll(client) for _ in range(11)]
    assert [batch and first_tokens(batch) for batch in polled] == [[n * 100] for n in range(8)] + [None, [800], [900]]


def test_batch_whose_answer_was_cut_off_is_handed_out_again(sqlite_url: str) -> None:
    with serving(sqlite_url, max_bytes=1 << 26) as client:
        start(client)
        offer(client, 0, length=150_000)  # more than the sockets' buffers swallow
        with httpx.Client(base_url=client.base_url) as impatient, impatient.stream("GET", "/batch") as answer:
            assert answer.status_code == 200  # and nobody reads on
        deadline = time.monotonic() + 10
        while (batch := poll(client)) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert first_tokens(batch) == [0]


def test_restart_keeps_trainer_environments_step_and_queue(store_url: str) -> None:
    with serving(store_url) as client:
        start(client, {}, {"desired_name": "code"})
        offer(client, *range(0, 300, 100), env_id=1)
        poll(client)
    with serving(store_url) as client:
        assert get(client, "/info") == {"batch_size": 4, "max_token_len": 512}
        assert get(client, "/wandb_info") == {"group": "group", "project": "project"}
        assert get(client, "/status") == {"current_step": 1, "queue_size": 2}
        assert status_of(client, 1)["self_queue_size"] == 2
        assert post(client, "/register-env", ENVIRONMENT)["env_id"] == 2
        assert [first_tokens(poll(client)) for _ in range(2)] == [[100], [200]]
        assert poll(client) is None


def test_status_tells_an_environment_when_to_stop(client: httpx.Client) -> None:
    start(client, {"weight": 3.0, "min_batch_allocation": 0.25}, {"desired_name": "code"}, batch_size=16)
    for number in range(6):
        post(client, "/scored_data", group(number * 100, size=4, env_id=number % 2))
    assert status_of(client, 0) == {
        "current_step": 0,
        "queue_size": 6,
        "unallocated_fraction": 0.75,
        "self_queue_size": 3,
        "max_group_size": 4,
        "env_weight": 0.75,
    }
    assert status_of(client, 1)["queue_size"] == 5  # 4 sequences of the other's 12 are promised to it
    assert get(client, "/status-env?env_id=1") == status_of(client, 1)


def test_minimum_allocation_is_in_every_batch(client: httpx.Client) -> None:
    start(client, {}, {"desired_name": "rare", "min_batch_allocation": 0.5}, batch_size=8)
    offer(client, *range(0, 400, 100), env_id=0)
    offer(client, 900, env_id=1)
    assert first_tokens(poll(client)) == [0, 900]


def test_reset_forgets_everything(client: httpx.Client) -> None:
    start(client, {})
    offer(client, 0)
    offer(client, 100)
    assert get(client, "/latest_example")["tokens"][0][0] == 100
    poll(client)
    assert client.get("/reset_data").text == "Reset successful"
    assert get(client, "/status") == {"current_step": 0, "queue_size": 0}
    assert get(client, "/info")["batch_size"] == -1
    assert get(client, "/wandb_info") == {"group": None, "project": None}
    assert get(client, "/latest_example")["tokens"] == []
    start(client)
    assert poll(client) is None
