"""Guards that have no observations, and what goes unseen because of it."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from loomrl.release.guard import Finding, Guard

OUTCOMES = "neither outcomes nor feedback have come, so a version that answers wrongly or badly is not noticed"
USERS = "no user has told the outcomes of four sessions, so a version that fails the same few users is not noticed"
WORDS = "no answer in words was seen, so answers that are empty, short or refusals are not noticed"
MEANINGS = {
    "error": "no call has ended",
    "latency_s": "no call was answered, so a slower version is not noticed",
    "violation": "the monitor has checked no answer, so forbidden content is not noticed",
    "empty": WORDS,
    "tokens": WORDS,
    "refusal": WORDS,
    "entropy": WORDS,
    "later": "no user or session has called again six times, so what goes wrong later in a session is not noticed",
    "reward": OUTCOMES,
    "success": OUTCOMES,
    "negative": OUTCOMES,
    "reward_of_user": USERS,
    "success_of_user": USERS,
}
ALTERNATIVES = (("reward", "success", "negative"), ("reward_of_user", "success_of_user"))
"""One of these tells how good the answers are: the others add little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Guards that are silent for one reason."""

    metrics: tuple[str, ...]
    meaning: str

    def __str__(self) -> str:
        return f"{', '.join(self.metrics)}: {self.meaning}"


def silences(findings: Sequence[Finding]) -> tuple[Silence, ...]:
    """The guards that one of the versions has no observations of."""
    heard = {each.guard.metric for each in findings if each.baseline.count and each.challenger.count}
    longest = any(each.guard.longest and not each.challenger.count for each in findings)
    found = unheard([each.guard for each in findings], heard)
    if longest and "tokens" in heard:
        meaning = "no prompt was long beside the others, so answers to long prompts are not compared by themselves"
        labels = [each.guard.label for each in findings if each.guard.longest and not each.challenger.count]
        found += (Silence(metrics=tuple(labels), meaning=meaning),)
    return found


def unheard(guards: Sequence[Guard], heard: Set[str]) -> tuple[Silence, ...]:
    """The guards of metrics that were not heard of, by what that means."""
    told = {metric for group in ALTERNATIVES if not heard.isdisjoint(group) for metric in group} | {*heard}
    by_meaning: dict[str, list[str]] = {}
    for metric in dict.fromkeys(guard.metric for guard in guards):
        if metric not in told:
            by_meaning.setdefault(MEANINGS.get(metric, "nothing reports it"), []).append(metric)
    return tuple(Silence(metrics=tuple(metrics), meaning=meaning) for meaning, metrics in by_meaning.items())
