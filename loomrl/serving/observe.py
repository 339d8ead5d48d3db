"""One call as others watch it: measured for comparisons of arms, and metered for operators."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from loomrl.serving.call import Gathered, Usage
from loomrl.serving.dispatch import ArmReplica
from loomrl.serving.measure import MeasuredCall
from loomrl.serving.meter import MeteredCall
from loomrl.serving.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Observed:
    """A call from when it is given to an arm. Without watchers nothing happens."""

    measured: MeasuredCall | None = None
    metered: MeteredCall | None = None

    def first(self, candidate: ArmReplica) -> None:
        """The first token is here, from this one."""
        if self.measured is not None:
            self.measured.first()
        if self.metered is not None:
            self.metered.first(candidate)

    def note_answer(self, candidate: ArmReplica, usage: Usage | None = None) -> None:
        """The answer of this one is complete."""
        if self.measured is not None:
            self.measured.note_answer(candidate.arm.name)
        if self.metered is not None:
            self.metered.note_answer(candidate, usage)

    def note_choices(self, arm: str, choices: Sequence[Gathered], *, prompt_chars: int) -> None:
        """The choices as they were drawn."""
        if self.measured is not None:
            self.measured.note_choices(arm, choices, prompt_chars=prompt_chars)

    def note_verdict(self, *, violation: bool) -> None:
        """The monitor has seen the answer."""
        if self.measured is not None:
            self.measured.note_verdict(violation=violation)
        if self.metered is not None and violation:
            self.metered.note_violation()

    def note_failure(self, error: BaseException) -> None:
        """The call has no answer."""
        if self.measured is not None and isinstance(error, Refusal):
            self.measured.note_failure(error)
        if self.metered is not None:
            self.metered.note_failure(error)


UNSEEN = Observed()


@contextmanager
def observing(observed: Observed) -> Iterator[None]:
    """Observe a block: what it raises ends the call."""
    try:
        yield
    except BaseException as error:
        observed.note_failure(error)
        raise
