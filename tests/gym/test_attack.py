"""The attacker finds what is planted, leaves sound environments alone, and what it found is tried by `envs check`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loomrl.gym.attack import hunt as hunting
from loomrl.gym.attack.arena import Clock
from loomrl.gym.attack.attempt import Attack, Finding, low_bound
from loomrl.gym.attack.commands import commands, mutants
from loomrl.gym.attack.hunt import Hunt, open_family
from loomrl.gym.attack.kept import file_of, keep, read
from loomrl.gym.attack.run import LEARNER, AttackReport, attack_environment
from loomrl.gym.attack.shape import SPOILS, changed, copies, shape_of
from loomrl.gym.attack.source import read_source, sample_pattern
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.check.run import check_environment
from tests.gym import attack_envs
from tests.gym.attack_envs import PLANTED, SOUND, Absolute, Contains, Labelled, Magic, Password, SecondCheck, Sum

pytestmark = pytest.mark.usefixtures("fresh_families")


@pytest.fixture
def fresh_families() -> Iterator[None]:
    hunting._OPENED.clear()
    yield
    hunting._OPENED.clear()


def hunt(kind: type[BaseEnvironment], *stages: str, seconds: float = 60) -> list[Finding]:
    async def run() -> list[Finding]:
        clock = Clock(seconds)
        family, fresh, source = await open_family(kind, {}, kind.families[0], clock, lambda place: None)
        work = Hunt(family, fresh, source, clock, lambda place: None)
        found = [finding for stage in stages for finding in await work.run(stage, LEARNER)]
        return [*found, *work.graders()]

    return asyncio.run(run())


@pytest.mark.parametrize(("kind", "rule"), [(Contains, "spoiled"), (Absolute, "spoiled"), (SecondCheck, "graders")])
def test_spoiled_answers_that_are_paid_are_found(kind: type[BaseEnvironment], rule: str) -> None:
    assert rule in {finding.rule for finding in hunt(kind, "spoil")}


def test_the_last_number_may_count() -> None:
    assert hunt(attack_envs.LastNumber, "spoil", "more") == []


def test_no_more_than_one_session_of_a_server_is_taken_at_a_time() -> None:
    assert hunt(attack_envs.Seated, "more") == []
    assert (attack_envs.Seated.most, attack_envs.Seated.taken) == (1, 0)


def test_a_kept_attack_fails_the_check_until_it_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = hunt(Absolute, "spoil")
    file = tmp_path / "attacks.json"
    keep(found, file)
    keep(found, file)
    assert read(file) == found
    monkeypatch.setattr("loomrl.gym.attack.kept.file_of", lambda environment: file)
    (_, broken) = check_environment(Absolute, only=("attacks",)).checks
    assert not broken.passed
    assert "'negated' is paid 1.00" in broken.detail
    (_, mended) = check_environment(Sum, only=("attacks",)).checks
    assert mended.passed, mended.detail


def test_the_file_lies_beside_the_module_or_in_this_folder() -> None:
    from loomrl.envs.number import NumberEnvironment

    assert file_of(Sum()) == Path(attack_envs.__file__).parent / "Sum.attacks.json"
    assert file_of(NumberEnvironment()).parent == Path()


def test_answers_are_found_inside_what_is_common_to_all() -> None:
    shape = shape_of(["<answer>12</answer>", "<answer>157</answer>"])
    assert (shape.wrap("x"), shape.core("<answer>9</answer>")) == ("<answer>x</answer>", "9")
    assert shape_of(["<answer>12</answer>"]).core("<answer>12</answer>") == "12"
    behind = shape_of(["So 2. <answer>2</answer>", "It is 31. <answer>31</answer>"])
    assert behind.dress("So 2. <answer>2</answer>", "x") == "So 2. <answer>x</answer>"
    assert shape_of(["7", "12"]).wrap("x") == "x"


def test_spoils_leave_alone_what_an_author_may_allow() -> None:
    assert SPOILS["five percent"]("200", "7", "Estimate it within 10 %.") is None
    assert SPOILS["bet or"]("red", "dark red", "") is None
    assert SPOILS["negated"]("0", "7", "") is None
    assert SPOILS["other order"]("a, b, c", "", "Name them.") is None
    assert SPOILS["bet or"]("7", "9", "") == ("7 or 9", "9 or 7")


def test_candidates_come_from_the_source_and_from_marks_in_the_prompt() -> None:
    assert "##override##" in read_source(Magic()).literals[:12]
    assert sample_pattern(r"^admin:(\d+)x*$") == "admin:1x"
    assert ("a word after a label, 1", "42") in set(copies("Sum?\n[debug] answer=42"))


def test_a_bound_needs_more_than_luck() -> None:
    assert low_bound([1.0] * 60) > 0.85
    assert low_bound([1.0] * 2 + [0.0] * 10) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_what_is_planted_is_found(kind: type[BaseEnvironment]) -> None:
    report = attack_environment(kind, seconds=60)
    assert PLANTED[kind] in {finding.rule for finding in report.findings}, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.__name__)
def test_sound_environments_are_left_alone(kind: type[BaseEnvironment]) -> None:
    report = attack_environment(kind, seconds=60)
    assert report.passed, str(report)


def test_commands_have_values_at_their_bounds_and_hidden_verbs() -> None:
    assert set(mutants("sell 3 lamps")) >= {"sell -1 lamps", "sell 1000000 lamps", "sell 3 *"}
    assert changed('{"name": "send", "arguments": {"to": "ann"}}', "*", number=False) == (
        '{"name": "send", "arguments": {"to": "*"}}'
    )
    family, _, source = asyncio.run(open_family(attack_envs.Backdoor, {}, "default", Clock(60), lambda place: None))
    assert "teleport -1" in commands(family, source, ["Bring it: take THING, drop THING, finish."])


def test_a_number_of_the_task_that_gives_the_answer_is_found() -> None:
    found = hunt(attack_envs.Numbered, "blind", seconds=5)
    assert "given away" in {finding.rule for finding in found}


def test_an_unfinished_attack_says_so_in_its_last_line() -> None:
    late = ("blind: no time for 1 families (default)",)
    report = AttackReport("Sum", "1.0.0", "Sum.attacks.json", (), 0, 0, 1.0, (), late, (), 1)
    assert "nothing found; 1 jobs had no time, or too little" in str(report).splitlines()[-1]


@pytest.mark.slow
def test_the_trained_policy_finds_a_sequence_that_no_list_holds() -> None:
    found = hunt(Password, "learn", seconds=600)
    assert found[0].attack == Attack("say", ("lift", "turn", "knock"), guess=True)


def test_the_report_names_the_definition_the_attack_and_the_remedy() -> None:
    kept: dict[str, Any] = {"seconds": 5}
    text = str(attack_environment(Labelled, **kept))
    assert "the answer is given away" in text
    assert "Keep what grades out of what the policy reads." in text
