"""User feedback: what people said, else what their behaviour says, else nothing."""

from collections.abc import Sequence
from math import fsum

from loomrl.feedback.reward.score import Score, Source, known, missing
from loomrl.types import Feedback

SAID = ("thumb", "stars", "correction", "choice", "abandoned")
DERIVED = ("asked_again", "corrected", "left")


def user_feedback(feedback: Sequence[Feedback]) -> Score:
    """The mean of what was said, oldest first: of each kind about each answer the newest. It goes before signals."""
    for kinds, source, what in ((SAID, "human", "people said"), (DERIVED, "automated", "their behaviour says")):
        if found := newest(feedback, kinds):
            return _mean(found, source, what)  # type: ignore[arg-type]
    return missing("silence: nobody said anything")


def newest(feedback: Sequence[Feedback], kinds: tuple[str, ...]) -> list[Feedback]:
    """Of each of these kinds about each answer the newest; `feedback` is oldest first."""
    found: dict[tuple[object, ...], Feedback] = {}
    for each in feedback:
        if each.kind in kinds:
            other = each.data.get("over") or each.data.get("under") or ""
            found[each.source, each.kind, each.call, str(other)] = each
    return list(found.values())


def _mean(given: Sequence[Feedback], source: Source, what: str) -> Score:
    value = fsum(each.value for each in given) / len(given)
    told = ", ".join(f"{each.kind} {each.value:g}" for each in given[:5])
    more = f" and {len(given) - 5} more" if len(given) > 5 else ""
    signals = [{"id": each.id, "kind": each.kind, "value": each.value} for each in given]
    return known(min(max(value, 0.0), 1.0), f"{what}: {told}{more}", source=source, signals=signals)
