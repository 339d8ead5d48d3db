"""One update's samples, and how they are learnt from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loomrl.algorithms.language.batch import Kind, LanguageWork
from loomrl.algorithms.language.measure import signal
from loomrl.algorithms.language.packing import Sample, SampleSize, plan_update
from loomrl.algorithms.language.resolved import Algorithms
from loomrl.algorithms.language.sample import preferences, samples_of
from loomrl.config import DPO, GRPO, RLOO, LanguageWeave, Optimizer, PolicyGradient
from loomrl.config.weave import Objectives
from loomrl.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Samples for the learners."""

    kind: Kind
    samples: Sequence[Sample]
    groups: Sequence[str] = ()
    """Group of each sample."""
    units: Sequence[tuple[int, ...]] | None = None
    """Samples that stay together."""
    labels: Sequence[float] = ()
    """Weight of each sample, negative if it is undesirable."""
    mismatched: Sequence[Sample] = ()
    """Prompts with the answers to others, by which the KL to the reference policy is estimated."""
    dropped: int = 0
    """Groups that teach nothing."""
    multipliers: tuple[float, ...] = ()
    """Weight of every objective in addition to each sample's preference."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of samples beyond the update's own attempts."""

    def shares(
        self, optimizer: Optimizer, rate: float, *, learners: int, rng: np.random.Generator, flat: bool
    ) -> list[LanguageWork]:
        """The work of each learner, or of each group of learners that share rows, in flat rows or in padded ones."""
        plan = plan_update(
            _sizes(self.samples), optimizer=optimizer, learners=learners, rng=rng, units=self.units, flat=flat
        )
        work = LanguageWork(
            self.kind, tuple(self.samples), (), rate, groups=tuple(self.groups), epochs=optimizer.epochs
        )
        noise = int(rng.integers(2**31))
        work = replace(work, labels=tuple(self.labels), multipliers=self.multipliers, noise=noise)
        shares = [replace(work, steps=steps) for steps in plan]
        if not self.mismatched:
            return shares
        once = optimizer.model_copy(update={"epochs": 1, "minibatches": 1})
        scored = plan_update(_sizes(self.mismatched), optimizer=once, learners=learners, rng=rng, flat=flat)
        others = [LanguageWork(self.kind, tuple(self.mismatched), steps, rate) for steps in scored]
        return [replace(share, mismatched=other) for share, other in zip(shares, others, strict=True)]


def lesson_of(
    algorithm: Algorithms,
    groups: Sequence[Group],
    *,
    version: int,
    stop: Collection[int] | None = None,
    again: Sequence[Group] = (),
) -> Lesson:
    """The attempts of groups, and of those `again` to learn from, for policy `version`; with `stop`, but for those that
    were cut off.
    """
    drops = isinstance(algorithm, PolicyGradient) and algorithm.dynamic_sampling
    by_turn = isinstance(algorithm, GRPO | RLOO) and algorithm.credit == "turn"
    kept = [group for group in (*groups, *again) if not drops or signal(group, by_turn=by_turn)]
    tree = algorithm.tree if isinstance(algorithm, LanguageWeave) else Objectives.of(())
    samples, names = samples_of(
        kept, clip=algorithm.reward_clip, version=version, stop=stop, parts=tree.leaves, objectives=tree.names
    )
    if not any(sample.size.targets for sample in samples):
        return Lesson(kind="reinforce", samples=(), dropped=len(groups))
    dropped = sum(drops and not signal(group, by_turn=by_turn) for group in groups)
    if isinstance(algorithm, DPO):
        samples, units = preferences(kept, samples, names, pairs=algorithm.pairs, margin=algorithm.margin)
        return Lesson(kind="prefer", samples=samples, units=units, dropped=dropped)
    return Lesson(kind="reinforce", samples=samples, groups=names, dropped=dropped)


def _sizes(samples: Sequence[Sample]) -> list[SampleSize]:
    return [sample.size for sample in samples]
