import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from loomrl.errors import ConfigError, LoomError, ServeError
from loomrl.experiments.arms import parse_arms
from loomrl.experiments.serve import body_for, check_sources, curl, resolve_serving, serving
from loomrl.serving.deployment.source import source_of
from loomrl.store import open_store
from loomrl.store.keys import FORM
from loomrl.store.sessions import person_hash
from tests.command_line import typed, typed_json
from tests.needs import needs
from tests.serving.control_support import control_policy


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an exported control policy and one that is no policy."""
    monkeypatch.chdir(tmp_path)
    control_policy().save(tmp_path / "pole")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_words_become_arms_in_their_order() -> None:
    served = resolve_serving(["a/1", "b/2", "port=9000"], settings={"endpoint": "x", "host": None})
    assert [(arm.what, arm.label, arm.share) for arm in served.arms] == [("a/1", "stable", 0.9), ("b/2", "canary", 0.1)]
    assert (served.endpoint, served.port, served.name) == ("x", 9000, "x")
    followed = resolve_serving([], settings={}, follow="run")
    assert [(arm.what, arm.follow) for arm in followed.arms] == [("run", "newest")]


def test_a_file_is_the_base_of_what_is_said_behind_it() -> None:
    served = resolve_serving(["serving/language_tiny", "run-7", "engine.slots=3"], settings={})
    assert (served.name, served.arms[0].what, served.engine.slots) == ("language_tiny", "run-7", 3)  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="trains a policy; to serve what it made, name its run"):
        resolve_serving(["control/cartpole"], settings={})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to serve"),
        (["nobody"], "policy name='nobody' is unknown"),
        (["empty"], "neither config.json"),
        (["run@best"], "run='run' is unknown"),
        (["pole", "engine.slots=3"], "control policies have no engine"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_starts(words: list[str], said: str) -> None:
    with pytest.raises(LoomError, match=said), serving(resolve_serving([*words, "port=0"], settings={})):
        pytest.fail("it must not start")


def test_a_taken_port_is_refused_before_slow_imports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = (
            "import sys; from loomrl.experiments.serve import *\n"
            f"try:\n    serving(resolve_serving(['pole', 'port={port}'], settings={{}})).__enter__()\n"
            "except Exception as error:\n    print(type(error).__name__, 'ray' in sys.modules, 'torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["ServeError", "False", "False"], done.stderr
        with pytest.raises(ServeError, match=f"port={port} .* is taken"):
            typed("serve", "pole", "--port", str(port))


def test_a_rate_of_recording_is_for_control_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = resolve_serving(["pole", "record.rate=0.5"], settings={})
    with open_store("sqlite:///loom.db") as db:
        (source,) = check_sources(experiment, db)
        language = replace(source, kind="language")
        monkeypatch.setattr("loomrl.experiments.serve.source_of_arm", lambda *_: language)
        with pytest.raises(ConfigError, match=r"record\.rate=0\.5 has no effect"):
            check_sources(experiment, db)


def test_the_curl_line_asks_what_the_policy_can_answer() -> None:
    experiment = resolve_serving(["pole"], settings={})
    with open_store("sqlite:///loom.db") as db:
        (source,) = check_sources(experiment, db)
        body = body_for(source, "policy", db)
    assert body == {"model": "policy", "observation": [0.0, 0.0, 0.0, 0.0]}
    assert "Authorization" not in curl("http://h:1", experiment, body, None)
    beyond = experiment.override({"host": "0.0.0.0"})
    assert "'Authorization: Bearer KEY'" in curl("http://h:1", beyond, body, "KEY")
    assert '"Authorization: Bearer $LOOMRL_KEY"' in curl("http://h:1", beyond, body, None)


def test_people_opt_out_and_in_and_are_listed_without_their_names() -> None:
    typed_json("people", "opt-out", "ada", "bob", "--endpoint", "math")
    listed = typed_json("people", "list", "--endpoint", "math")["people"]
    assert {each["person"] for each in listed} == {person_hash("math", "ada"), person_hash("math", "bob")}
    assert "ada" not in typed("people", "list", "--endpoint", "math")
    typed_json("people", "opt-out", "ada", "--undo", "--endpoint", "math")
    (left,) = typed_json("people", "list", "--endpoint", "math")["people"]
    assert left["person"] == person_hash("math", "bob")
    assert typed_json("people", "list")["people"] == []


def test_keys_are_created_listed_and_revoked() -> None:
    made = typed_json("keys", "create", "app", "--scope", "act", "--scope", "feedback", "--rate", "5", "--days", "30")
    assert FORM.fullmatch(made["key"])
    assert made["scopes"] == ["act", "feedback"]
    (listed,) = typed_json("keys", "list")["keys"]
    assert listed["id"] == made["id"]
    assert "sha256" not in listed
    assert made["key"] not in typed("keys", "list")
    typed("keys", "revoke", made["id"], "--reason", "lost")
    assert "revoked" in typed("keys", "list")


def test_endpoints_are_set_shown_drained_and_deleted(here: Path) -> None:
    first = typed_json("endpoints", "set", "x", "stable=pole")
    assert (first["revision"], first["arms"][0]["policy"]) == (1, str(here / "pole"))
    control_policy(seed=1).save(here / "other")
    second = typed_json("endpoints", "set", "x", "stable=pole", "canary=other:0.25", "--revision", "1")
    assert [(arm["name"], arm["share"], arm["role"]) for arm in second["arms"]] == [
        ("stable", 0.75, "stable"),
        ("canary", 0.25, "canary"),
    ]
    with pytest.raises(LoomError, match="at revision 2"):
        typed("endpoints", "drain", "x", "--revision", "1")
    assert typed_json("endpoints", "drain", "x", "--reason", "tonight")["state"] == "draining"
    assert [each["reason"] for each in typed_json("endpoints", "show", "x")["history"]] == ["tonight", "", ""]
    typed("endpoints", "delete", "x")
    assert typed_json("endpoints", "list") == {"endpoints": []}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pole", r"an arm is NAME=WHAT\[:SHARE"),
        ("stable=nobody", "'nobody' is unknown"),
        ("stable=pole:half", "is no number"),
        ("canary=pole:0.1:cannary", "Did you mean 'canary'"),
    ],
)
def test_arms_that_cannot_be_read_are_named(text: str, said: str) -> None:
    with open_store("sqlite:///loom.db") as db, pytest.raises(ConfigError, match=said):
        parse_arms([text], db)


def test_a_folder_has_its_own_name_as_version(here: Path) -> None:
    with open_store("sqlite:///loom.db") as db:
        found = source_of("pole", db)
    assert (found.key, found.version, found.kind) == (str(here / "pole"), "pole", "control")


@pytest.mark.system
@pytest.mark.slow
@needs("HAProxy")
def test_serve_answers_survives_kills_and_ends_in_order(here: Path, unused_tcp_port_factory: Callable[[], int]) -> None:
    port = unused_tcp_port_factory()
    command = [sys.executable, "-m", "loomrl", "serve", "pole", "--port", str(port), "--json"]
    with (here / "err").open("w") as err:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
    try:
        told = json.loads(server.stdout.readline() or f'"{(here / "err").read_text()[-2000:]}"')
        assert told["url"] == f"http://127.0.0.1:{port}"
        asked = subprocess.run(["sh", "-c", f"{told['curl']} -sS"], capture_output=True, text=True, check=True)
        assert json.loads(asked.stdout)["version"] == "pole"
        shown = typed_json("endpoints", "show", "policy")
        victim = next(row["pid"] for row in shown["replicas"] if row["role"] == "gateway")
        os.kill(victim, signal.SIGKILL)
        body = {"model": "policy", "observation": [0, 0, 0, 0]}
        with httpx.Client(timeout=30) as client:
            assert {client.post(f"{told['url']}/v1/act", json=body).status_code for _ in range(200)} == {200}
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=90) == 143
        assert {row["pid"] for row in typed_json("endpoints", "show", "policy")["replicas"]} <= {victim}
    finally:
        server.kill()
        server.communicate()
