"""The loop as one command: people, judgements, and the page that tells of them."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from sqlalchemy import insert

from loomrl.evaluation.report import Report, Score
from loomrl.evaluation.statistics import wilson
from loomrl.experiments.bench.loop import CONTROL, QUICK, SHOWN, measure
from loomrl.experiments.commands.face import FORMER
from loomrl.experiments.loop import production
from loomrl.experiments.loop.crowd import Answered, Crowd, Manner
from loomrl.experiments.loop.page import write
from loomrl.experiments.loop.production import Production, ProductionError
from loomrl.experiments.loop.story import (
    Demonstration,
    Departure,
    Proposal,
    files_with,
    find_person,
    forget_one,
    verify_elsewhere,
)
from loomrl.experiments.verify.verification import LinkReport
from loomrl.gym.task_mixture import open_task_mixture
from loomrl.store import open_store
from loomrl.store.sessions import participants, person_hash
from tests.experiments.forget_support import frozen, learn, produce, service, speak
from tests.experiments.forget_support import suite as gate_suite
from tests.feedback.served_support import ENDPOINT, serve

FAMILIES = ("Math/calculus.derivative", "Math/calculus.integral")


def crowd(folder: Path) -> Crowd:
    made = Production(folder)
    with open_store(made.store_url) as db:
        return Crowd("http://127.0.0.1:1", "policy", open_task_mixture(made.base(1), db), level=2, seed=1)


def words(people: Crowd, manner: Manner, *, of: int = 2000) -> dict[bool, Counter[str]]:
    """What people say of answers half of which are right."""
    said: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for number in range(of):
        said[number % 2 == 0][people._word(number % 2 == 0, manner)] += 1
    return said


def test_most_people_say_nothing_and_one_judgement_in_ten_is_wrong(tmp_path: Path) -> None:
    said = words(crowd(tmp_path), Manner(speak=0.4, wrong=0.1))
    spoken = {right: each["up"] + each["down"] for right, each in said.items()}
    assert all(0.35 < count / 1000 < 0.45 for count in spoken.values())
    assert 0.05 < said[True]["down"] / spoken[True] < 0.15
    assert 0.05 < said[False]["up"] / spoken[False] < 0.15


def test_flipped_people_say_the_opposite_and_shuffled_ones_anything(tmp_path: Path) -> None:
    flipped = words(crowd(tmp_path), Manner(honesty="flipped", speak=1.0, wrong=0.0))
    assert flipped == {True: Counter(down=1000), False: Counter(up=1000)}
    shuffled = words(crowd(tmp_path), Manner(honesty="shuffled", speak=1.0, wrong=0.0))
    assert all(400 < each["up"] < 600 for each in shuffled.values())


def test_the_loop_trains_what_is_shipped_here_and_at_nobodys_hour(tmp_path: Path) -> None:
    plan = Production(tmp_path).plan({"triggers.count": 7})
    assert (plan.triggers.count, plan.triggers.schedule) == (7, None)
    assert plan.training.store_url == plan.store_url == f"sqlite:///{tmp_path}/loom.db"
    assert plan.training.environments == Production(tmp_path).base(1).environments
    assert plan.suite == "loop_tiny"


def test_a_coordinator_that_ends_by_itself_ends_the_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not {*production.COORDINATE} & FORMER.keys()
    monkeypatch.setattr(production, "COORDINATE", ("lop",))
    made = Production(tmp_path)

    def wait(check: Callable[[], None]) -> None:
        for _ in range(600):
            check()
            time.sleep(0.05)

    with open_store(made.store_url) as db, made.coordinating(made.plan({}), db) as check:  # noqa: SIM117
        with pytest.raises(ProductionError, match=r"ended by itself.*coordinate\.log"):
            wait(check)
    assert "Did you mean 'loop'" in (tmp_path / "coordinate.log").read_text()


def test_a_person_is_chosen_whom_the_fewest_versions_learnt_from(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        for number, sessions in ((0, ["a"]), (1, ["b"]), (2, ["c"])):
            person = person_hash("policy", f"person-{number}")
            rows = [{"endpoint": "policy", "session": id, "person": person} for id in sessions]
            with db.write() as connection:
                connection.execute(insert(participants), rows)
        first, second, third = {"a"}, {"b", "c"}, {"d"}
        for versions, name in (
            ([first, second], "person-1"),
            ([{"b"}, second], "person-2"),
            ([first], "person-0"),
            ([second, second], "person-1"),
            ([third], None),
            ([], None),
        ):
            assert find_person(db, "policy", versions) == name


def test_a_secret_is_found_in_whatever_file_has_it(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log").write_bytes(b"\x00 password=abcdef \xff")
    (tmp_path / "clean").write_text("nothing")
    assert files_with(tmp_path, ["abcdef", "other"]) == ["deep/log"]
    assert files_with(tmp_path, ["other"]) == []


def score(right: int, of: int) -> Score:
    return Score(wilson(right, of), 0.0, {}, None, None, None, 0)


def report(policy: str, derivative: int, integral: int) -> Report:
    families = dict(zip(FAMILIES, (score(derivative, 50), score(integral, 50)), strict=True))
    return Report(policy, 0.95, score(derivative + integral, 100), {}, families, {}, {}, {})


def told() -> Demonstration:
    rng = random.Random(0)
    answers = [
        Answered(
            at=1000.0 + number,
            person=number,
            call=f"c{number}",
            family=FAMILIES[number % 2],
            version="base/1",
            arm="stable",
            is_right=rng.random() < 0.4 + 0.5 * (number > 300),
            said="",
        )
        for number in range(600)
    ]
    good = Proposal(
        honesty="honest", policy="next/36", phase="done", reason="<b>released</b>", most_share=1.0, asked_at=1100.0,
        trained_at=1101.0, over_at=1300.0,
    )  # fmt: skip
    bad = replace(good, honesty="flipped", policy="worse/9", phase="refused", most_share=0.0, over_at=1500.0)
    certificate = {
        "id": "c0ffee00", "retired": ["next/36", "worse/9"], "verdicts": {"policy": ["verdict gate-1"]},
        "made_again": [{"versions": {"next/36": "next-without-1/36"}}], "checks": {"one": True, "two": True},
    }  # fmt: skip
    gone = Departure(
        person="person-<7>", sessions=3, at=1600.0, seconds=40.0, stable="next-without-1/36", certificate=certificate
    )
    link = asdict(LinkReport("base", "tokens", 1234, 4321, "tokens", "equal ids"))
    verification = {
        "version": "next-without-1/36", "holds": True, "share": 0.05, "seed": 7, "seconds": 9.0, "root": "abc",
        "links": [link],
    }  # fmt: skip
    return Demonstration(
        departure=gone, verification=verification,
        began=0.0, ended=1.0, answered=answers, proposals=[good, bad], said=240, failed=[], secrets=3, found=(),
        reports=[report("base/1", 40, 15), report("next/36", 49, 42)],
    )  # fmt: skip


def test_the_page_tells_of_every_version_and_runs_nothing_of_theirs(tmp_path: Path) -> None:
    write(tmp_path / "loop.html", told(), title="A <loop>")
    page = (tmp_path / "loop.html").read_text()
    assert "A &lt;loop&gt;" in page
    assert "&lt;b&gt;released" in page
    for part in ("satisfies 55 %", "the end 91 %", "1. released", "2. refused", "feedback is flipped"):
        assert part in page
    for part in (
        "person-&lt;7&gt; asked to be forgotten: 3 sessions",
        "2 of its 2 checks hold",
        "1,234 of 4,321 tokens",
        "seed 7",
    ):
        assert part in page
    assert page.count("<script") == 1, "the drawing, which the page's own policy allows"
    assert " src=" not in page
    assert " href=" not in page


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_a_person_leaves_and_a_second_process_verifies_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # of the environment, for the commands
    made = Production(tmp_path)
    sessions = produce(tmp_path, of={"somebody else": (0, 1)})
    present = learn(tmp_path, "kto", frozen(tmp_path), run="present", **{"data.epochs": 1})
    suite = gate_suite(tmp_path, regression={"margin": 0.99})
    plan = made.plan({"endpoint": ENDPOINT, "suite": suite})
    with open_store(made.store_url) as db:
        speak(db, "person-8", [sessions[7]])
        serve(db, present)
        with service(tmp_path):
            gone = forget_one(made, plan, [present], db, print)
    assert gone is not None
    assert (gone.person, gone.sessions) == ("person-8", 1)
    assert gone.certificate["made_again"][0]["versions"] == {present: gone.stable}
    assert present in gone.certificate["retired"]
    found = verify_elsewhere(made, gone.stable)
    assert (found["holds"], found["version"], found["share"]) == (True, gone.stable, 0.05)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(3600)
def test_a_short_loop_loses_nothing_and_releases_nothing_that_is_no_better(tmp_path: Path) -> None:
    figures = measure(QUICK, tellings=(SHOWN, CONTROL), page=tmp_path / "loop.html")
    assert [each["telling"] for each in figures["tellings"]] == ["shown", "shuffled"]
    for each in figures["tellings"]:
        assert each["failed"] == 0
        assert each["answers"] > 0 < each["judgements"]
        assert each["secrets"] > 0
        assert each["files_with_secrets"] == []
        assert each["sessions_of_opted_out"] == 0
        assert each["verified"]
        assert each["forgotten"]["stable"] == "base/1", "what learnt from her was not released, so it is only retired"
        assert each["forgotten"]["retired"]
        assert each["released"] == 0, "a policy that hardly speaks learns nothing from so few judgements"
    assert "feedback is flipped" in (tmp_path / "loop.html").read_text()
