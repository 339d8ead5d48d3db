"""Estimates from logged probabilities where the value is known: a synthetic contextual bandit.

Axes: `_B` contexts, `_F` numbers of a context, `_A` choices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.control.logged import Logged
from loomrl.control.space import Array
from loomrl.evaluation.offpolicy import judge_logged

NUMBERS, CHOICES = 3, 4
NAMES = ("ips", "snips", "dr", "logged")
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Size:
    """Amount of work."""

    counts: Sequence[int] = (100, 300, 1000)
    """Logged decisions of a log."""
    logs: int = 300
    contexts: int = 1_000_000
    """By which the true value is known."""


FULL = Size()
QUICK = Size(counts=(100,), logs=10, contexts=10_000)


class Softmax:
    """Chooses by linear scores of the context."""

    def __init__(self, weights_FA: Floats) -> None:
        self._weights_FA = weights_FA

    def chances(self, seen_B: Array, *, greedy: bool) -> Array:
        """Probability of every choice."""
        scores_BA = seen_B @ self._weights_FA
        shares_BA: Array = np.exp(scores_BA - scores_BA.max(1, keepdims=True))
        if greedy:
            shares_BA = np.eye(CHOICES)[scores_BA.argmax(1)]
        found: Array = shares_BA / shares_BA.sum(1, keepdims=True)
        return found


class Bandit:
    """A logging policy, a candidate that prefers other choices, and the chance of success of every choice."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        logging_FA, candidate_FA, self._worth_FA = (rng.normal(size=(NUMBERS, CHOICES)) for _ in range(3))
        self.logging, self.candidate = Softmax(0.7 * logging_FA), Softmax(1.5 * candidate_FA)

    def success(self, seen_B: Array) -> Floats:
        """The chance of success of every choice."""
        found: Floats = 1 / (1 + np.exp(-(seen_B @ self._worth_FA)))
        return found

    def value(self, contexts: int, *, greedy: bool) -> float:
        """The candidate's."""
        seen_B = np.random.default_rng(1).normal(size=(contexts, NUMBERS))
        return float((self.candidate.chances(seen_B, greedy=greedy) * self.success(seen_B)).sum(1).mean())

    def log(self, count: int, seed: Sequence[int]) -> list[Logged]:
        """Decisions of the logging policy, an episode each."""
        rng = np.random.default_rng(seed)
        seen_B = rng.normal(size=(count, NUMBERS)).astype(np.float32)
        chances_BA = self.logging.chances(seen_B, greedy=False)
        chosen_B = (rng.random((count, 1)) > chances_BA.cumsum(1)).sum(1).clip(max=CHOICES - 1)
        rows = np.arange(count)
        paid_B = (rng.random(count) < self.success(seen_B)[rows, chosen_B]).astype(np.float32)
        logp_B = np.log(chances_BA[rows, chosen_B]).astype(np.float32)
        return [
            Logged(
                seen=np.stack([seen_B[at]] * 2),
                actions=chosen_B[at : at + 1],
                rewards_T=paid_B[at : at + 1],
                terminated=True,
                logprobs_T=logp_B[at : at + 1],
            )
            for at in range(count)
        ]


def measure(size: Size) -> dict[str, Any]:
    """Of each estimate: the share of 95 % intervals that hold the value, its root mean squared error, mean width."""
    bandit = Bandit()
    found = {
        f"{'greedy' if greedy else 'sampled'}_{count}": _measured(bandit, count, size, greedy=greedy)
        for greedy in (False, True)
        for count in size.counts
    }
    return {"logs": size.logs, **found}


def _measured(bandit: Bandit, count: int, size: Size, *, greedy: bool) -> dict[str, Any]:
    value = bandit.value(size.contexts, greedy=greedy)
    judged = [
        judge_logged(bandit.log(count, (count, at)), bandit.candidate, gamma=1.0, greedy=greedy)
        for at in range(size.logs)
    ]
    told: dict[str, Any] = {"value": value, "effective": float(np.mean([one.effective for one in judged]))}
    for name in NAMES:
        bounds = [getattr(one, name) for one in judged]
        told[name] = {
            "coverage": float(np.mean([one.low <= value <= one.high for one in bounds])),
            "error": float(np.sqrt(np.mean([(one.mean - value) ** 2 for one in bounds]))),
            "width": float(np.mean([one.high - one.low for one in bounds])),
        }
    return told
