"""Guards without observations are named, with what goes unseen."""

from loomrl.config.release import ReleasePlan
from loomrl.release.controller import ReleaseEvidenceLog
from loomrl.release.guard import OUTCOMES, USERS, WORDS, silences, unobserved
from loomrl.release.passage import guards_of
from loomrl.store.observations import Observation

PLAN = ReleasePlan()


def seen(*metrics: str) -> ReleaseEvidenceLog:
    """A release whose two versions were observed in these."""
    trail = ReleaseEvidenceLog(PLAN, first_revision=1, shares={1: {"stable": 0.5, "canary": 0.5}})
    observations = [
        Observation(revision=1, arm=arm, unit=unit, metric=metric, value=float(unit), at=0.0)
        for metric in metrics
        for unit, arm in enumerate(("stable", "canary") * 30)
    ]
    trail.take(observations)
    return trail


def test_metrics_that_nobody_reports_are_named_by_what_goes_unseen() -> None:
    words = ("prompt_chars", "tokens", "empty", "refusal", "entropy")
    found = silences(seen("error", "latency_s", "violation", "later", *words).findings())
    assert [(each.metrics, each.meaning) for each in found] == [
        (("reward", "success", "negative"), OUTCOMES),
        (("reward_of_user", "success_of_user"), USERS),
    ]
    assert str(found[0]).startswith("reward, success, negative: neither outcomes nor feedback")


def test_one_kind_of_outcome_is_enough_to_know_how_good_answers_are() -> None:
    found = silences(seen("error", "latency_s", "violation", "later", "success", "success_of_user").findings())
    assert [each.metrics for each in found] == [("empty", "tokens", "refusal", "entropy")]
    assert found[0].meaning == WORDS


def test_prompts_of_one_length_leave_answers_to_long_ones_unseen() -> None:
    trail = seen("tokens")
    trail.take(
        [
            Observation(revision=1, arm=arm, unit=unit, metric="prompt_chars", value=9.0, at=0.0)
            for unit, arm in enumerate(("stable", "canary") * 30)
        ]
    )
    assert "p25 of tokens, longest 10 % of prompts" in [each.metrics[0] for each in silences(trail.findings())]


def test_before_anything_was_observed_every_guard_is_named_once() -> None:
    guards = guards_of(PLAN)
    named = [metric for each in unobserved(guards, set()) for metric in each.metrics]
    assert sorted(named) == sorted({guard.metric for guard in guards})
