"""TensorZero's configuration of an endpoint, and the feedback that comes back from there."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from loomrl.errors import ConfigError, DataError
from loomrl.experiments.tensorzero import configuration, told_in
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, Endpoint, Role, set_endpoint
from loomrl.store.feedback import FEEDBACK
from tests.answering import answering
from tests.command_line import typed, typed_json
from tests.serving.feedback_support import Served

ARMS = (
    Arm(name="stable", policy="r/1", share=0.75),
    Arm(name="new.2", policy="r/2", share=0.25, role=Role.CANARY),
    Arm(name="starting", policy="r/3", share=0.0, role=Role.CANARY),
    Arm(name="shadow", policy="r/4", share=1.0, role=Role.SHADOW),
)
ENDPOINT = Endpoint(name="policy", revision=7, arms=ARMS, created_at=1.0)
LINES = [
    {"id": "1", "metric": "thumb", "value": "true", "call": "chatcmpl-a"},
    {"id": "2", "metric": "thumb", "value": False, "call": "chatcmpl-b"},
    {"id": "3", "metric": "stars", "value": "4", "call": "chatcmpl-b"},
    {"id": "4", "metric": "comment", "value": "too long", "call": "chatcmpl-b"},
    {"id": "5", "metric": "demonstration", "value": '[{"type": "text", "text": "yes"}]', "call": "chatcmpl-b"},
    {"id": "6", "metric": "success", "value": "1", "call": "chatcmpl-b"},
    {"id": "7", "metric": "reward", "value": "0.25", "call": "chatcmpl-b"},
]


def test_variants_are_the_arms_that_answer_with_their_shares() -> None:
    text = configuration(ENDPOINT, url="http://h:8000/", key_variable="LOOMRL_KEY")
    found = tomllib.loads(text)
    function = found["functions"]["policy"]
    assert set(function["variants"]) == {"stable", "new.2", "starting"}
    assert function["experimentation"]["candidate_variants"] == {"stable": 0.75, "new.2": 0.25}
    provider = found["models"]["policy-new.2"]["providers"]["loomrl"]
    assert provider == {
        "type": "openai",
        "model_name": "policy@new.2",
        "api_base": "http://h:8000/v1/",
        "api_key_location": "env::LOOMRL_KEY",
    }
    kinds = {name: metric["type"] for name, metric in found["metrics"].items()}
    assert kinds == {"thumb": "boolean", "stars": "float", "success": "boolean", "reward": "float"}


def test_file_is_written_for_an_endpoint_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("sqlite:///loom.db") as db:
        set_endpoint(db, "policy", ARMS, at=1.0)
    told = typed_json("endpoints", "export", "policy", "--url", "http://h:8000")
    assert (told["endpoint"], told["revision"]) == ("policy", 1)
    assert "env::" not in (tmp_path / "tensorzero.toml").read_text()
    with pytest.raises(ConfigError, match="is not served now: say where it will be"):
        typed("endpoints", "export", "policy")


def test_what_was_posted_there_is_feedback_here() -> None:
    told = list(told_in([json.dumps(line) for line in LINES]))
    assert [{name: value for name, value in each.items() if name not in ("id", "call")} for each in told] == [
        {"thumb": "up"},
        {"thumb": "down"},
        {"stars": 4},
        {"comment": "too long"},
        {"correction": "yes"},
        {"outcome": {"success": 1.0}},
        {"outcome": {"reward": 0.25}},
    ]
    assert (told[0]["id"], told[0]["call"]) == ("tensorzero-1", "chatcmpl-a")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1: Expecting property name"),
        ('{"id": "1", "metric": "thumb", "value": true}', "line 1: 'call' is missing"),
        ('{"id": "1", "metric": "colour", "value": 1, "call": "c"}', "metric='colour' is unknown"),
        ('{"id": "1", "metric": "thumb", "value": "maybe", "call": "c"}', "neither true nor false"),
    ],
)
def test_line_that_cannot_be_read_is_named(line: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        list(told_in([line]))


@contextmanager
def gateway() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers as our gateway does, and what it was asked."""
    asked: list[dict[str, Any]] = []

    def answer(method: str, path: str, body: bytes) -> dict[str, Any]:
        asked.append(json.loads(body))
        model = asked[-1]["model"]
        choice = {"index": 0, "message": {"role": "assistant", "content": model}, "finish_reason": "stop"}
        about = {"id": f"chatcmpl-{len(asked)}", "object": "chat.completion", "created": 1, "model": model}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return {**about, "choices": [choice], "usage": usage}

    with answering(answer) as url:
        yield url, asked


@pytest.mark.slow
@pytest.mark.skipif(find_spec("tensorzero") is None, reason="tensorzero is not installed here: pip install tensorzero")
def test_real_tensorzero_reads_the_file_and_divides_calls_among_the_arms(tmp_path: Path) -> None:
    from tensorzero import TensorZeroGateway

    with gateway() as (url, asked):
        file = tmp_path / "tensorzero.toml"
        text = configuration(ENDPOINT, url=url, key_variable=None)
        file.write_text(text + "[gateway.observability]\nenabled = false\n")
        question = {"messages": [{"role": "user", "content": "hello"}]}
        variants: Counter[str] = Counter()
        with TensorZeroGateway.build_embedded(config_file=str(file)) as embedded:
            for _ in range(200):
                answer = embedded.inference(function_name="policy", input=question, include_raw_response=True)
                variants[answer.variant_name] += 1
                assert json.loads(answer.raw_response[0].data)["id"].startswith("chatcmpl-")
            pinned = embedded.inference(function_name="policy", input=question, variant_name="starting")
        assert set(variants) == {"stable", "new.2"}
        assert 120 <= variants["stable"] <= 175
        assert pinned.content[0].text == "policy@starting"
        assert Counter(each["model"] for each in asked[:-1]) == {f"policy@{name}": n for name, n in variants.items()}


async def test_feedback_on_an_answer_of_ours_is_stored_once_and_on_what_is_not_on_record_refused(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with Served(sqlite_url) as served:
        set_endpoint(served.db, "m", [Arm(name="stable", policy="v")], at=0.0)
        call = await served.chat("s")
        lines = [json.dumps(line | {"call": call}) for line in LINES[:2]]
        (tmp_path / "lines").write_text("\n".join([*lines, ""]))
        words = ("feedback", "import", str(tmp_path / "lines"), "--store", sqlite_url)
        assert typed_json(*words) == {"new": 2, "known": 0, "refused": []}
        (tmp_path / "lines").write_text("\n".join([*lines, *map(json.dumps, LINES[2:4])]))
        told = typed_json(*words, code=1)
        assert (told["new"], told["known"], len(told["refused"])) == (0, 2, 2)
        assert "call: 'b' is unknown here" in told["refused"][0]
        stored = [(one.kind, one.value) for _, one in FEEDBACK.recent(served.db, limit=9)]
        assert stored == [("thumb", 0.0), ("thumb", 1.0)]
