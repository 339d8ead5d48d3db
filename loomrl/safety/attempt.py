"""Rules applied to finished attempts, as a gateway's monitor would apply them."""

from collections.abc import Mapping, Sequence

from loomrl.safety.rule import Asked, TextRule
from loomrl.safety.screen import screened
from loomrl.types import Trajectory


def broken(rules: Mapping[str, TextRule], attempt: Trajectory) -> Sequence[str]:
    """The rule that each turn breaks, or an empty text. Tool calls are part of the text here, as they were drawn."""
    system = ""
    found = []
    for turn in attempt.turns:
        system = "\n".join([system, *(each.content for each in turn.observation if each.role == "system")]).strip()
        hit = screened(rules, turn.action, asked=Asked(system=system)).hit
        found.append("" if hit is None else hit.rule)
    return found
