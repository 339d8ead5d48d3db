"""People taken out of weights: the result equals a run that never saw them, byte for byte, and nothing else is left."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from loomrl.algorithms.language.passes import place_in_pass
from loomrl.errors import ConfigError, LoomError, RunTaken
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.forget.certificate import write_certificate
from loomrl.experiments.forget.plan import plan_forgetting
from loomrl.run.version import has_checkpoint
from loomrl.serving.deployment.source import source_of
from loomrl.store import beside, open_store
from loomrl.store.endpoints import Arm, set_endpoint, show_endpoint
from loomrl.store.events import EVENTS, record
from loomrl.store.forgettings import FORGETTINGS, spoken
from loomrl.store.runs import POLICIES, RUNS, RunStatus
from loomrl.store.view.metrics import append_metrics
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import new_metrics
from loomrl.types import Stage
from tests.algorithms.language_support import QUIET, build
from tests.algorithms.language_support import train as make_updates
from tests.command_line import typed, typed_json
from tests.experiments.forget_kills import STAGES, main
from tests.experiments.forget_support import KEY, bytes_of, forget, frozen, learn, produce, settings, speak
from tests.feedback.served_support import ENDPOINT, serve, url
from tests.forks import FORKS

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900), QUIET]
ADA = (5, 17, 30)
BOB = (6, 9)
"""Their sessions."""
ONE_PASS = {"data.epochs": 1, "train.checkpoint_every": 1}
"""Six updates of eight."""


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which version r/0 was served to Ada, Bob and others."""
    folder = tmp_path_factory.mktemp("production")
    produce(folder, of={"ada": ADA, "bob": BOB})
    return folder


@pytest.mark.parametrize("kind", ["sft", "kto", "raft", "rloo"])
def test_weights_after_forgetting_equal_those_of_a_run_that_never_saw_the_person(
    kind: str, production: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(production, tmp_path / "production"))
    never = Path(shutil.copytree(production, tmp_path / "never"))
    present = learn(folder, kind, frozen(folder), run="present")
    with_her = bytes_of(folder, present)
    with open_store(url(folder)) as db:
        serve(db, present)
    done = forget(folder, "ada")
    reference = learn(never, kind, frozen(never, without=sessions_of(ADA)), run="reference")
    with open_store(url(folder)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
        assert stable.startswith("present-without-")
        assert POLICIES.require(db, present).stage is Stage.FORGOTTEN
    assert bytes_of(folder, stable) == bytes_of(never, reference) != with_her
    assert all(done.certificate["certificate"]["checks"].values())


@pytest.fixture
def late(production: Path, tmp_path: Path) -> tuple[Path, str, str]:
    """A folder in which Eve spoke in the session that sft learns from last, `present` is served, and its version 4 too;
    the present version, and her session.
    """
    folder = Path(shutil.copytree(production, tmp_path / "production"))
    (session,) = sorted(sessions_of(range(48)), key=lambda id: place_in_pass(3, 0, id))[-1:]
    with open_store(url(folder)) as db:
        speak(db, "eve", [session])
        set_endpoint(db, "old", [Arm(name="stable", policy="present/4")], at=1.0)
    present = learn(folder, "sft", frozen(folder), run="present", **ONE_PASS)
    with open_store(url(folder)) as db:
        serve(db, present)
        for step in range(1, 7):
            append_metrics(db, new_metrics("present", step, {Metric.TIME_LEARN: 2.0}), at=1.0)
    return folder, present, session


def test_updates_before_the_first_row_are_kept(late: tuple[Path, str, str], tmp_path: Path, production: Path) -> None:
    folder, present, session = late
    with open_store(url(folder)) as db:
        plan = plan_forgetting(db, url(folder), ENDPOINT, ["eve"])
    (replay,) = plan.replays
    assert (plan.untouched, replay.start, replay.updates) == ({"present": 5}, 4, 2)
    assert plan.versions == (present,)
    assert replay.seconds == 4.0, "of the last two updates, as measured"
    never = Path(shutil.copytree(production, tmp_path / "never"))
    reference = learn(never, "sft", frozen(never, without=[session]), run="reference", **ONE_PASS)
    done = forget(folder, "eve")
    with open_store(url(folder)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
        assert show_endpoint(db, "old").stable.policy == "present/4"
        assert POLICIES.require(db, "present/4").stage is Stage.CANDIDATE
    assert done.certificate["certificate"]["made_again"][0]["from"] == "present/4"
    assert bytes_of(folder, stable) == bytes_of(never, reference)


@pytest.mark.timeout(1800)
def test_kills_at_every_stage_lose_nothing_and_serve_nothing_that_is_retired(
    late: tuple[Path, str, str], tmp_path: Path, production: Path
) -> None:
    folder, _, session = late
    for stage in STAGES:
        process = FORKS.Process(target=main, args=(str(folder), stage))
        process.start()
        process.join(600)
        assert process.exitcode == -signal.SIGKILL, stage
        with open_store(url(folder)) as db:
            for endpoint in (ENDPOINT, "old"):
                serving = POLICIES.require(db, show_endpoint(db, endpoint).stable.policy)
                assert serving.stage is not Stage.FORGOTTEN, stage
                assert has_checkpoint(serving, db), stage
    done = forget(folder, "eve")
    never = Path(shutil.copytree(production, tmp_path / "never"))
    reference = learn(never, "sft", frozen(never, without=[session]), run="reference", **ONE_PASS)
    with open_store(url(folder)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
        assert len(FORGETTINGS.latest(db)) == len(EVENTS.read(db, kind="weights.forgotten")) == 1
        assert len(EVENTS.read(db, kind="person.forgotten")) == 1
    assert done.state == "done"
    assert bytes_of(folder, stable) == bytes_of(never, reference)


def test_children_are_made_again_on_what_their_parents_became(production: Path, tmp_path: Path) -> None:
    """Ada is in the data of both runs; Bob only in those of the first."""

    def both(folder: Path, without: Sequence[str]) -> str:
        later = [id for id in sessions_of(range(24, 48)) if id not in without]
        first = learn(folder, "kto", frozen(folder, name="one", without=[*later, *without]), run="first")
        with open_store(url(folder)) as db:
            serve(db, first)
        second = frozen(folder, name="two", parent=first, without=list(without))
        return learn(folder, "raft", second, run="second", **{"parent": first, "algorithm.best": 0.5})

    folder = Path(shutil.copytree(production, tmp_path / "production"))
    present = both(folder, ())
    with open_store(url(folder)) as db:
        serve(db, present)
    for names, gone in ((["bob"], BOB), (["ada"], (*BOB, *ADA))):
        forget(folder, *names)
        never = Path(shutil.copytree(production, tmp_path / names[0]))
        reference = both(never, sessions_of(gone))
        with open_store(url(folder)) as db:
            stable = show_endpoint(db, ENDPOINT).stable.policy
            assert stable.startswith("second-without-")
        assert bytes_of(folder, stable) == bytes_of(never, reference)


def test_several_people_leave_at_once_and_one_who_comes_back_leaves_again(production: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(production, tmp_path / "production"))
    present = learn(folder, "sft", frozen(folder), run="present")
    with open_store(url(folder)) as db:
        serve(db, present)
    first = forget(folder, "ada", "bob")
    assert forget(folder, "bob", "ada").id == first.id, "nothing is left of them"
    with open_store(url(folder)) as db:
        between = show_endpoint(db, ENDPOINT).stable.policy
        speak(db, "ada", sessions_of([40]))  # as if she had come back, and this were what she said then
    again = forget(folder, "ada")
    never = Path(shutil.copytree(production, tmp_path / "never"))
    without = sessions_of([*ADA, *BOB, 40])
    reference = learn(never, "sft", frozen(never, without=without), run="reference")
    with open_store(url(folder)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
        assert POLICIES.require(db, between).stage is Stage.FORGOTTEN
    assert again.certificate["certificate"]["endpoints"] == {ENDPOINT: stable}
    assert bytes_of(folder, stable) == bytes_of(never, reference)


def test_what_cannot_be_made_again_is_refused_with_the_reason_and_nothing_is_deleted(
    production: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(production, tmp_path / "production"))
    present = learn(folder, "sft", frozen(folder), run="present", **{"train.updates": 2})
    with open_store(url(folder)) as db:
        speak(db, "everybody", sessions_of(range(25)))
        plan = plan_forgetting(db, url(folder), ENDPOINT, ["everybody"])
        assert (plan.replays, plan.endpoints) == ((), {}), "what is not served is only retired"
        serve(db, present)
    with pytest.raises(
        ConfigError, match=r"25 of its 48 training rows would be left out.*at most 50% may be.*Release a"
    ):
        forget(folder, "everybody")
    Path(beside(url(folder), "endpoint-assistant").removeprefix("sqlite:///")).rename(folder / "elsewhere.db")
    with pytest.raises(ConfigError, match=r"run 'present' cannot be made again.*there is no hub 'endpoint-assistant'"):
        forget(folder, "ada")
    with open_store(url(folder)) as db:
        assert not FORGETTINGS.latest(db)
        assert spoken(db, ENDPOINT, ["ada"]) == set(sessions_of(ADA))


def test_command_says_what_it_takes_and_does_it(
    production: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(production, tmp_path / "production"))
    learn(folder, "sft", frozen(folder), run="present", **{"train.updates": 2, "data.batch": 48})
    monkeypatch.chdir(tmp_path)
    forget_ada = ("people", "forget", "ada", "--endpoint", ENDPOINT, "--store", url(folder))
    for words, said in (
        (["--plan"], "--plan has no effect without --weights"),
        (["--weights"], "--weights needs --key FILE"),
        (["--weights", "--key", "none.pem"], r"--key=none.pem.*openssl genpkey"),
    ):
        with pytest.raises(ConfigError, match=said):
            typed(*forget_ada, *words)
    stranger = ("people", "forget", "ada", "Ada", "--endpoint", ENDPOINT, "--store", url(folder))
    with pytest.raises(ConfigError, match="no session of 'Ada' is on record"):
        typed(*stranger, "--weights", "--plan")
    told = typed_json(*forget_ada, "--weights", "--plan")
    assert (told["versions"], told["replays"]) == (["present/2"], []), "it is not served, so nothing is made again"
    assert "3 sessions, 3 rows of training data in 1 data sets" in typed(*forget_ada, "--weights", "--plan")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", "key.pem"], check=True, capture_output=True)
    with pytest.raises(ConfigError, match="no session of 'Ada' is on record"):
        typed(*stranger, "--weights", "--key", "key.pem")
    assert "retired: present/2" in typed(*forget_ada, "--weights", "--key", "key.pem")
    (file,) = tmp_path.glob("forgetting-*.json")
    assert json.loads(file.read_text())["retired"] == ["present/2"]
    with pytest.raises(LoomError, match="'present/2' is never used again"):
        typed("policies", "export", "present/2", "out", "--store", url(folder))


def test_training_on_their_rows_ends_and_its_next_version_does_not_count(production: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(production, tmp_path / "production"))
    algo = open_algorithm(settings(folder, "sft", frozen(folder)), run="present").build_algo()
    algo.begin()
    forget(folder, "ada")
    with pytest.raises(RunTaken):
        make_updates(algo)
    algo.stop()
    with open_store(url(folder)) as db:
        assert RUNS.require(db, "present").status is RunStatus.FAILED
        assert [one.id for one in POLICIES.latest(db, run="present")] == ["present/0"]


def test_rollouts_of_a_child_are_played_again_from_what_its_parent_became(production: Path, tmp_path: Path) -> None:
    def both(folder: Path, without: Sequence[str]) -> str:
        first = learn(folder, "kto", frozen(folder, without=list(without)), run="first", **{"train.updates": 2})
        begun = {"parent": first, "algorithm.model.build": None, "train.updates": 2}
        algo = build(folder, "grpo", run="second", **begun)
        algo.begin()
        make_updates(algo)
        algo.stop()
        return "second/2"

    folder = Path(shutil.copytree(production, tmp_path / "production"))
    present = both(folder, ())
    with open_store(url(folder)) as db:
        serve(db, present)
    forget(folder, "ada")
    never = Path(shutil.copytree(production, tmp_path / "never"))
    reference = both(never, sessions_of(ADA))
    with open_store(url(folder)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
    assert bytes_of(folder, stable) == bytes_of(never, reference)


def test_grandchildren_on_policy_are_made_again_if_they_are_served_and_else_retired(
    production: Path, tmp_path: Path
) -> None:
    def chain(folder: Path, without: Sequence[str]) -> str:
        version = learn(folder, "kto", frozen(folder, without=list(without)), run="first", **{"train.updates": 1})
        for run in ("second", "third"):
            version = played(folder, version, run=run)
        return version

    folder = Path(shutil.copytree(production, tmp_path / "production"))
    present = chain(folder, ())
    aside = played(folder, "second/1", run="aside")
    with open_store(url(folder)) as db:
        serve(db, present)
    done = forget(folder, "ada").certificate["certificate"]
    never = Path(shutil.copytree(production, tmp_path / "never"))
    reference = chain(never, sessions_of(ADA))
    with open_store(url(folder)) as db:
        stable = show_endpoint(db, ENDPOINT).stable.policy
        for version in ("first/1", "second/1", "third/1", aside):
            found = POLICIES.require(db, version)
            assert (found.stage, has_checkpoint(found, db)) == (Stage.FORGOTTEN, False)
        assert not any(run.id.startswith("aside-without") for run in RUNS.latest(db, limit=100))
    assert [each["run"] for each in done["made_again"]] == ["first", "second", "third"]
    assert {aside, "aside/0"} <= set(done["retired"])
    assert stable.startswith("third-without-")
    assert bytes_of(folder, stable) == bytes_of(never, reference)


def played(folder: Path, parent: str, *, run: str) -> str:
    """An update on-policy from a version."""
    algo = build(folder, "grpo", run=run, **{"parent": parent, "algorithm.model.build": None, "train.updates": 1})
    algo.begin()
    make_updates(algo)
    algo.stop()
    return f"{run}/{algo.done}"


@pytest.mark.parametrize("is_on_record", [True, False])
def test_files_on_another_machine_are_named_and_the_version_retired(
    is_on_record: bool, production: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(production, tmp_path / "production"))
    present = learn(folder, "sft", frozen(folder), run="present", **{"train.updates": 1, "data.batch": 48})
    there = folder / "artifacts" / "runs" / "present"
    away = there.rename(tmp_path / "away")
    told = {"host": "elsewhere", "machine": "two GPUs"} if is_on_record else {}
    with open_store(url(folder)) as db, db.write() as connection:
        record(connection, "run.resumed", "present", told, at=2e9)
    done = forget(folder, "ada").certificate["certificate"]
    machine = "elsewhere: two GPUs" if is_on_record else "unknown"
    assert done["unreached"] == [{"run": "present", "machine": machine}]
    assert done["retired"] == [present]
    assert away.exists()
    away.rename(there)
    with open_store(url(folder)) as db:
        with pytest.raises(LoomError, match="is never used again"):
            source_of(present, db)
        assert forget(folder, "ada").certificate["certificate"] == done, "nothing is left of her on record"


def test_certificate_is_checked_by_openssl_and_a_changed_one_is_not(production: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(production, tmp_path / "production"))
    learn(folder, "sft", frozen(folder), run="present", **{"train.updates": 1, "data.batch": 48})
    file = tmp_path / "c.json"
    write_certificate(forget(folder, "ada").certificate, file)
    public = tmp_path / "public.pem"
    public.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    check = [
        "openssl",
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        public,
        "-rawin",
        "-in",
        file,
        "-sigfile",
        f"{file}.sig",
    ]
    assert subprocess.run(check, check=False, capture_output=True).returncode == 0
    told = json.loads(file.read_text())
    assert told["retired"] == ["present/1"]
    assert len(told["rows"][0]["sha256"]) == len(ADA)
    file.write_text(file.read_text().replace("present/1", "present/2"))
    assert subprocess.run(check, check=False, capture_output=True).returncode != 0


def sessions_of(numbers: Iterable[int]) -> list[str]:
    return [f"s-r-0-0-{at // 2}-{at % 2}" for at in numbers]
