"""People taken out of weights with the gate inside the command: what it allows is released; if it refuses, an earlier
version answers, and nothing that learnt from them does.
"""

import json
import shutil
import signal
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from loomrl.errors import ConfigError
from loomrl.release.ledger import command_release, latest
from loomrl.release.passage import Command
from loomrl.run.version import has_checkpoint
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, set_endpoint, show_endpoint
from loomrl.store.releases import RELEASES
from loomrl.store.runs import POLICIES
from loomrl.store.verdicts import VERDICTS, VerdictOutcome
from loomrl.types import Stage
from tests.algorithms.language_support import QUIET
from tests.command_line import typed_json
from tests.experiments.forget_kills import main
from tests.experiments.forget_support import KEY, forget, frozen, learn, produce, service, speak, suite
from tests.feedback.served_support import ENDPOINT, serve, url
from tests.forks import FORKS

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900), QUIET]
ALLOWS = {"regression": {"margin": 0.99}}
REFUSES = {"regression": None, "at_least": 0.9}


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("produced")
    sessions = produce(folder, of={"ada": (5, 17, 30)})
    with open_store(url(folder)) as db:
        speak(db, "eve", [sessions[7]])
    return folder


@pytest.fixture
def folder(produced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `present/2`, which learnt from Ada and Eve, is served; r/0 was before."""
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(produced, tmp_path / "production"))
    present = learn(folder, "sft", frozen(folder), run="present", **{"train.updates": 2, "data.batch": 24})
    with open_store(url(folder)) as db:
        serve(db, present)
    return folder


def forgotten(folder: Path, **judged: object) -> dict[str, object]:
    """The certificate of the command, with its gate inside."""
    file = folder / "key.pem"
    file.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    words = ("--key", str(file), "--suite", suite(folder, **judged), "--strategy", "immediate", "--store", url(folder))
    with service(folder):
        told = typed_json("people", "forget", "ada", "--endpoint", ENDPOINT, "--weights", *words)
    return dict(told["certificate"])


def assert_gone(folder: Path, *versions: str) -> None:
    with open_store(url(folder)) as db:
        for version in versions:
            found = POLICIES.require(db, version)
            assert found.stage is Stage.FORGOTTEN
            assert not has_checkpoint(found, db)


def test_version_made_again_is_released_by_the_gate_inside_the_command(folder: Path) -> None:
    told = forgotten(folder, **ALLOWS)
    with open_store(url(folder)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
        ((_, verdict),) = VERDICTS.recent(db, policy=stable)
    assert stable.startswith("present-without-")
    assert (verdict.outcome, verdict.against) == (VerdictOutcome.ALLOWED, "present/2")
    assert told["endpoints"] == {ENDPOINT: stable}
    assert told["verdicts"] == {ENDPOINT: [f"verdict {verdict.id}"]}
    assert_gone(folder, "present/2")


def test_earlier_version_answers_if_the_gate_refuses_the_one_made_again(folder: Path) -> None:
    told = forgotten(folder, **REFUSES)
    with open_store(url(folder)) as db:
        assert show_endpoint(db, ENDPOINT).stable.policy == "r/0"
        made = next(one for one in POLICIES.latest(db, limit=100) if one.run.startswith("present-without-"))
        ((_, verdict),) = VERDICTS.recent(db, policy=made.id)
        assert (verdict.outcome, made.stage) == (VerdictOutcome.REFUSED, Stage.CANDIDATE)
    assert told["endpoints"] == {ENDPOINT: "r/0"}
    assert "is refused" in json.dumps(told["verdicts"])
    assert all(dict(told["checks"]).values())  # type: ignore[call-overload]
    assert_gone(folder, "present/2")


def test_kill_between_refusal_and_the_earlier_version_is_gone_on_from(folder: Path) -> None:
    how = {"no_gate": None, "suite": suite(folder, **REFUSES)}
    process = FORKS.Process(target=main, args=(str(folder), "released"), kwargs=how)
    process.start()
    process.join(600)
    assert process.exitcode == -signal.SIGKILL
    with open_store(url(folder)) as db:
        assert (latest(db, ENDPOINT).challenger, latest(db, ENDPOINT).passage.is_open) == ("r/0", True)
    done = forget(folder, "eve", **how)
    with open_store(url(folder)) as db:
        assert show_endpoint(db, ENDPOINT).stable.policy == "r/0"
        assert len({row.release for row in RELEASES.latest(db, limit=100)}) == 1
    assert done.certificate["certificate"]["endpoints"] == {ENDPOINT: "r/0"}
    assert_gone(folder, "present/2")


def test_earlier_version_answers_if_the_canary_is_taken_back(folder: Path) -> None:
    with open_store(url(folder)) as db:

        def take_back(line: str) -> None:
            if "immediate of present-without" in line or "canary of present-without" in line:
                command_release(db, ENDPOINT, Command.ROLLBACK, who="ann", why="worse", at=1.0)

        done = forget(folder, "ada", also=take_back)
        assert show_endpoint(db, ENDPOINT).stable.policy == "r/0"
    assert "worse" in json.dumps(done.certificate["certificate"]["verdicts"])
    assert_gone(folder, "present/2")


def test_without_an_earlier_version_the_command_says_what_still_answers_and_deletes_no_weights(folder: Path) -> None:
    with open_store(url(folder)) as db:
        serve(db, "r/0")
        set_endpoint(db, "second", [Arm(name="stable", policy="present/2")], at=1.0)
    with pytest.raises(ConfigError, match=r"is refused.*present/2, which learnt from them, still answers.*--no-gate"):
        forgotten(folder, **REFUSES)
    with open_store(url(folder)) as db:
        assert show_endpoint(db, "second").stable.policy == "present/2"
        assert has_checkpoint(POLICIES.require(db, "present/2"), db)
    told = forgotten(folder, **ALLOWS)
    assert str(told["endpoints"]).count("present-without-") == 1
    assert_gone(folder, "present/2")
