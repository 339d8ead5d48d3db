"""The checker: a sound environment passes, and every broken one is caught by name with a message that teaches."""

import broken_envs
import pytest
import sample_envs
from broken_envs import BROKEN
from hypothesis import given
from hypothesis import strategies as st

from loomrl.errors import ConfigError
from loomrl.gym.check.promise import MOST, enough, interval
from loomrl.gym.check.run import ProbeProcess, check_environment
from tests.gym.forked_checks import forked_checks  # noqa: F401

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("forked_checks")]


def test_a_sound_environment_passes_every_check_with_figures():
    report = check_environment(sample_envs.GuessEnvironment)
    assert report.passed, str(report)
    assert [check.name for check in report.checks] == [
        *("contract", "settings", "tasks", "determinism", "oracle", "rewards"),
        *("random", "constant", "hacking", "hostile"),
    ]
    figures = {check.name: check.figures for check in report.checks}
    assert figures["oracle"]["episodes"] == 2 * 10 * 2
    assert figures["random"]["episodes"] >= 100
    assert figures["random"]["worst_family"] <= 0.1
    assert figures["hacking"]["hacks"] == 3
    assert figures["hacking"]["episodes"] >= 3 * 50
    assert 0 < figures["hostile"]["slowest_s"] < 0.5
    assert (report.environment, report.version) == ("Guess", "1.2.0")
    assert "Guess 1.2.0 passes." in str(report)


def test_what_loads_once_is_not_held_against_the_first_hostile_text(monkeypatch):
    started, start = [], ProbeProcess._start
    monkeypatch.setattr(ProbeProcess, "_start", lambda probe: started.append(probe) or start(probe))
    report = check_environment(sample_envs.SlowToLoad, only=["hostile"], step_limit_s=0.15)
    assert len(started) == 2, "one process, and another one after its end"
    (contract, hostile) = report.checks
    assert contract.passed
    assert hostile.detail == "hostile text 'not a number', above, level 5, seed 0: the process died (exit code 9)"


def only(check):
    return [check if check not in ("random", "hacking") else "opponents"]


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_each_mistake_is_caught_by_the_check_that_should_and_explained(kind):
    name, says = BROKEN[kind]
    report = check_environment(kind, only=only(name), step_limit_s=0.2)
    failed = {check.name: check.detail for check in report.checks if not check.passed}
    assert not report.passed
    assert list(failed) == [name]
    assert says in failed[name]


@pytest.mark.parametrize("kind", [broken_envs.Guessable, broken_envs.Hackable], ids=lambda kind: kind.__name__)
def test_fewer_episodes_catch_what_succeeds(kind):
    name, says = BROKEN[kind]
    report = check_environment(kind, only=["opponents"], share=0.3)
    assert says in next(check.detail for check in report.checks if check.name == name and not check.passed)


def test_a_share_of_the_episodes_is_fewer():
    few, all_ = (check_environment(sample_envs.GuessEnvironment, only=["opponents"], share=s) for s in (0.3, 1.0))
    assert few.passed
    for less, more in zip(few.checks[1:], all_.checks[1:], strict=True):
        assert 0 < less.figures["episodes"] < more.figures["episodes"]


def test_a_hang_is_killed_named_and_the_other_texts_are_still_tried():
    report = check_environment(broken_envs.BacktracksForEver, only=["hostile"], step_limit_s=0.1)
    detail = report.checks[-1].detail
    assert "'nested brackets'" in detail
    assert "killed" in detail
    assert "not tried" not in detail


def test_a_process_that_dies_fails_its_check_and_the_next_ones_run():
    report = check_environment(broken_envs.DiesInTheOracle, only=["oracle", "opponents"])
    verdicts = {check.name: check.passed for check in report.checks}
    assert verdicts == {"contract": True, "oracle": False, "random": True, "constant": True, "hacking": True}
    assert "exit code 9" in next(check.detail for check in report.checks if check.name == "oracle")


def test_settings_reach_the_checked_environment():
    report = check_environment(sample_envs.GuessEnvironment, {"max_steps": 1, "hints": False}, only=["oracle"])
    assert report.passed


def test_a_class_that_no_other_process_can_import_is_refused():
    class Local(sample_envs.GuessEnvironment):
        pass

    with pytest.raises(ConfigError, match="top level of a module"):
        check_environment(Local)


def test_an_unknown_check_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'oracle'"):
        check_environment(sample_envs.GuessEnvironment, only=["orakel"])


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=500))
def test_the_confidence_interval_holds_the_mean_and_lies_in_the_unit_interval(successes):
    low, high = interval(successes)
    mean = sum(successes) / len(successes)
    assert -1e-9 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= 1 + 1e-9


@given(st.floats(0.02, 0.9))
def test_enough_failures_and_no_fewer_show_a_mean_below_the_ceiling(ceiling):
    assert interval([0.0] * enough(ceiling))[1] <= ceiling + 1e-9
    assert interval([0.0] * (enough(ceiling) - 2))[1] > ceiling if enough(ceiling) > 3 else True


def test_a_ceiling_of_zero_is_checked_with_as_many_episodes_as_there_are():
    assert enough(0.0) == MOST
