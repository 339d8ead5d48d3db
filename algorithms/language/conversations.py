"""Conversations to imitate, update by update, in the place of rollouts: those of a file, or of a frozen data set.

All of them are tokenised before the first update, so that one that cannot be learnt from is refused before any is.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from typing_extensions import override

from loomrl.algorithms.language.lesson import Lesson
from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.passes import DataPasses, place_in_pass
from loomrl.algorithms.language.resolved import Algorithms, Resolved
from loomrl.algorithms.language.served.collector import dataset_of
from loomrl.algorithms.language.served.lesson import encode_thread, sample_threads
from loomrl.algorithms.timing import Phases
from loomrl.config import LanguagePolicy
from loomrl.errors import ConfigError, DataError, PolicyError
from loomrl.feedback.chat_file import ChatFiles, FileChat, read_chat_files
from loomrl.feedback.content import Contents
from loomrl.gym.task_mixture import TaskMixture
from loomrl.inference.chat import ChatTemplate, open_chat
from loomrl.store import LoomDB
from loomrl.store.datasets import DatasetRow, read_rows
from loomrl.telemetry.metric import Metric
from loomrl.types import Group

Threads = list[Sample]
"""The samples of one conversation: one, or several of a session whose answers fork."""
Keyed = tuple[str, Threads]
"""A conversation behind its key: its line in a file, or its trajectory."""
_log = logging.getLogger(__name__)


class ConversationSource(DataPasses):
    """The conversations of one run."""

    def __init__(self, resolved: Resolved, run: str, mixture: TaskMixture, *, db: LoomDB) -> None:
        experiment = resolved.experiment
        data = experiment.data
        assert data is not None, "sft has data"
        origin = resolved.origin
        context = resolved.model.context
        trusts = resolved.model.trust_remote_code
        about: Mapping[str, Any]
        if data.file is not None:
            files = read_chat_files(data)
            about = {"file": data.file, "sha256": files.sha256}
            train, held_out = encode_files(files, origin, context=context, trust_remote_code=trusts)
        else:
            dataset = dataset_of(experiment, db)
            about = {"dataset": dataset.id, "sha256": dataset.sha256}
            chat = open_chat(origin, trust_remote_code=trusts)
            with Contents(experiment.store_url) as contents:
                train, held_out = (
                    [*_encode_rows(contents, read_rows(db, dataset.id, part=part), chat, context=context)]
                    for part in ("train", "holdout")
                )
        super().__init__(experiment, run, mixture, about=about)
        self.held_out = [sample for _, threads in held_out for sample in threads]
        self._plan = [batch for epoch in range(data.epochs) for batch in self._pass(train, epoch)]
        if not train:
            raise DataError(f"{data.origin}: none of its conversations can be learnt from. Freeze another selection.")
        if not self.held_out:
            _log.warning("%s: nothing is held out, so no held-out loss is measured (data.held_out).", data.origin)
        if self.limit < self.planned:
            _log.warning(
                "train.updates=%d ends the run early: data.epochs=%d are %d updates.",
                self.limit,
                data.epochs,
                self.planned,
            )

    @property
    @override
    def planned(self) -> int:
        return len(self._plan)

    @override
    def learnt_in(self, update: int) -> Sequence[object]:
        return [key for key, _ in self._plan[update]]

    def collect(self, policy: LanguagePolicy, clock: Phases) -> tuple[list[Group], dict[str, float]]:
        """No groups, and the lengths of this update's conversations."""
        self._ended = None
        batch = self._batch()
        samples = [sample for threads in batch for sample in threads]
        learnt = sum(sample.size.targets for sample in samples)
        others = sum(sample.size.tokens for sample in samples) - learnt
        return [], {Metric.LENGTH_ACTION: learnt / len(batch), Metric.LENGTH_PROMPT: others / len(batch)}

    def lesson(self, groups: Sequence[Group], algorithm: Algorithms) -> Lesson:
        """The samples of this update."""
        return Lesson(kind="imitate", samples=[sample for threads in self._batch() for sample in threads])

    def score(self, mean: float | None) -> float | None:
        """The best version has the highest: what its evaluation says."""
        return mean

    @override
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "data": self._about["sha256"]}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["data"] != self._about["sha256"]:
            raise ConfigError(
                f"{self.name}: the run has learnt from other conversations, of SHA-256 {state['data'][:12]}, and these "
                f"are {self._about['sha256'][:12]}. Put the file back, or begin another --run."
            )
        super().load_state_dict(state)

    def _batch(self) -> list[Threads]:
        """The conversations of this update."""
        return [threads for _, threads in self._plan[self.done]]

    def _pass(self, train: Sequence[Keyed], epoch: int) -> list[Sequence[Keyed]]:
        """The batches of one pass."""
        ordered = sorted(train, key=lambda one: place_in_pass(self.experiment.seed, epoch, one[0]))
        size = self._settings.batch
        return [ordered[first : first + size] for first in range(0, len(ordered), size)]


@lru_cache(1)  # a run's files are checked before Ray starts, and tokenised then
def encode_files(
    files: ChatFiles, origin: Path, *, context: int, trust_remote_code: bool
) -> tuple[list[Keyed], list[Keyed]]:
    """The samples to learn from and those held out, by the template of the model in a folder; a DataError names file
    and line of a conversation that cannot be rendered, or is longer than the context.
    """
    chat = open_chat(origin, trust_remote_code=trust_remote_code)
    tool_role = chat.takes("tool")
    parts = [[_encode(one, chat, tool_role=tool_role) for one in part] for part in (files.train, files.held_out)]
    sized = zip([*files.train, *files.held_out], [*parts[0], *parts[1]], strict=True)
    long = [(len(sample.ids_T), one) for one, (_, (sample,)) in sized if len(sample.ids_T) > context]
    if long:
        most = max(tokens for tokens, _ in long)
        tokens, first = long[0]
        raise DataError(
            f"{first.where}: the conversation has {tokens} tokens, more than algorithm.model.context={context}, as "
            f"have {len(long) - 1} others. Raise it to {most}, or shorten or remove them."
        )
    return parts[0], parts[1]


def _encode(one: FileChat, chat: ChatTemplate, *, tool_role: bool) -> Keyed:
    try:
        sample = encode_thread(one.turns(tool_role=tool_role), chat, learns=lambda number: True)
    except PolicyError as error:
        raise DataError(f"{one.where}: {error}") from error
    assert sample is not None, "it has an answer"
    return str(one.line), [sample]


def _encode_rows(
    contents: Contents, rows: Iterable[DatasetRow], chat: ChatTemplate, *, context: int
) -> Iterator[Keyed]:
    """The samples of a data set's rows, but for those that were deleted since and those that are too long."""
    lost = {"were deleted since": 0, f"are longer than algorithm.model.context={context}": 0}
    deleted, long = lost
    for row in rows:
        attempt = contents.read(row)
        if attempt is None:
            lost[deleted] += 1
            continue
        try:
            threads = sample_threads(attempt, chat)
        except PolicyError as error:
            raise DataError(f"trajectory {row.trajectory}: {error}") from error
        if any(len(sample.ids_T) > context for sample in threads):
            lost[long] += 1
        elif threads:
            yield row.trajectory, threads
    for why, count in lost.items():
        if count:
            _log.warning("%d trajectories are not learnt from: they %s.", count, why)
