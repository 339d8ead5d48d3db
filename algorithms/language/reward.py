"""A reward model from pairs: a sequence classifier that scores the preferred answer higher (Bradley–Terry).

The pairs are those of dpo. Both conversations of a pair are read as the judge of kind classifier reads them, so that
what is trained is what scores.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import logsigmoid
from transformers import AutoModelForSequenceClassification

from loomrl.algorithms.language.served.item import Said, ServedAnswer, ServedItem, items_of
from loomrl.algorithms.language.served.lesson import find_call
from loomrl.config import RewardModel
from loomrl.errors import ConfigError, DataError, JudgeError, LearnerError
from loomrl.feedback.content import Contents
from loomrl.gym.classifier import SequenceClassifier, open_sequence_classifier, without_load_report
from loomrl.inference.model import config_of, open_tokenizer, save_model
from loomrl.store.datasets import DatasetRow
from loomrl.telemetry.metric import Metric
from loomrl.types import Message, Trajectory, Turn

NORM = 1.0
"""Longest gradient of an update; longer ones are shortened."""


@dataclass(frozen=True, slots=True)
class RewardPair:
    """The token ids of two conversations, of which the first is preferred."""

    better: tuple[int, ...]
    worse: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RewardPairs:
    """The pairs of a part of a data set, and how many were left out for which reason."""

    items: tuple[RewardPair | None, ...]
    """None for a pair that is left out. The others keep their places: a run that is resumed after a person's answers
    were deleted goes on with the rest."""
    left_out: Mapping[str, int]

    def required(self, part: str, remedy: str) -> "RewardPairs":
        """Itself; a DataError if there is no pair."""
        if self.some(range(len(self.items))):
            return self
        left = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items()) or "none was left out"
        raise DataError(f"algorithm.kind=reward: there is no pair in the {part} part ({left}). {remedy}")

    def some(self, places: Iterable[int]) -> list[RewardPair]:
        """The pairs at these places that are not left out."""
        return [pair for at in places if (pair := self.items[at]) is not None]


def read_pairs(
    settings: RewardModel, rows: Sequence[DatasetRow], said: Said, contents: Contents, reader: SequenceClassifier
) -> RewardPairs:
    """The pairs of these rows as token ids."""
    pairs: list[RewardPair | None] = []
    left_out: Counter[str] = Counter()
    try:
        items = items_of(settings, rows, said) if rows else []
    except DataError:  # `required` says in which part
        items = []
    for item in items:
        pairs.append(None)
        read = {row.trajectory: contents.read(row) for row in item.rows}
        found = _conversations(item, {id: one for id, one in read.items() if one is not None})
        if found is None:
            left_out["deleted since"] += 1
            continue
        try:
            better, worse = (tuple(reader.encode(messages)) for messages in found)
        except JudgeError:
            left_out["longer than the context"] += 1
            continue
        if better == worse:
            left_out["equal"] += 1
        else:
            pairs[-1] = RewardPair(better, worse)
    return RewardPairs(tuple(pairs), dict(left_out))


def _conversations(item: ServedItem, read: Mapping[str, Trajectory]) -> list[list[Message]] | None:
    """The better and the worse conversation; None if one is gone."""
    better, worse = (_thread(answer, read) for answer in item.answers)
    if better is None or worse is None:
        return None
    if item.text is not None:
        better = (*better[:-1], replace(better[-1], action=item.text))
    return [
        [message for turn in turns for message in (*turn.observation, Message("assistant", turn.action))]
        for turns in (better, worse)
    ]


def _thread(answer: ServedAnswer, read: Mapping[str, Trajectory]) -> tuple[Turn, ...] | None:
    attempt = read.get(answer.row.trajectory)
    found = None if attempt is None else find_call(attempt, answer.call)
    return found[0] if found is not None and found[0] else None


def plan_batches(count: int, *, size: int, epochs: int, seed: int) -> list[list[int]]:
    """The places of each update's pairs: they follow from the seed alone."""
    order = [np.random.default_rng([seed, epoch]).permutation(count).tolist() for epoch in range(epochs)]
    return [some[first : first + size] for some in order for first in range(0, len(some), size)]


def open_beginning(path: str, *, context: int, device: str) -> SequenceClassifier:
    """A classifier with one logit, or a language model with a new head, which scores everything alike."""
    config = config_of(path)
    if any("ForSequenceClassification" in name for name in config.architectures or ()):
        found = open_sequence_classifier(path, device=device)
        if found.model.config.num_labels != 1:
            raise ConfigError(
                f"algorithm.model.path={path!r}: a classifier of {found.model.config.num_labels} labels. Begin with a "
                "language model, or with a classifier of one logit."
            )
        return _limited(found, context)
    tokenizer = open_tokenizer(path)
    try:
        with without_load_report():
            opened: Any = AutoModelForSequenceClassification.from_pretrained(
                path,
                local_files_only=True,
                trust_remote_code=False,
                num_labels=1,
                dtype=torch.float32,
                output_loading_info=True,
            )
    except Exception as error:  # the boundary to what is in the folder
        raise ConfigError(
            f"algorithm.model.path={path!r}: no sequence classifier can begin with it ({type(error).__name__}: "
            f"{error!s:.300})."
        ) from error
    model, loaded = opened
    head = [name for name in loaded["missing_keys"] if name.startswith(("score.", "classifier."))]
    if len(head) != len(loaded["missing_keys"]) or not head:
        raise ConfigError(
            f"algorithm.model.path={path!r}: {len(loaded['missing_keys'])} weights are missing and would be random. "
            "Name a whole language model."
        )
    with torch.no_grad():
        for name in head:
            model.get_parameter(name).zero_()  # so that a new model has no opinion, whatever the seed
    model.config.use_cache = False
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", context)
    return _limited(SequenceClassifier(path, model.to(device), tokenizer, int(positions)), context)


def _limited(classifier: SequenceClassifier, context: int) -> SequenceClassifier:
    if context > classifier.context:
        raise ConfigError(f"algorithm.model.context={context}: {classifier.path} reads {classifier.context} tokens.")
    return replace(classifier, context=context)


class RewardLearner:
    """The classifier in training. A step follows from its pairs and its number alone."""

    def __init__(self, classifier: SequenceClassifier, settings: RewardModel, *, seed: int) -> None:
        self.classifier = classifier
        self._settings = settings
        self._seed = seed
        self._optimizer = torch.optim.AdamW(
            classifier.model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )

    def step(self, pairs: Sequence[RewardPair], *, number: int) -> dict[str, float]:
        """One update from these pairs; its metrics, none where no pair is left."""
        if not pairs:
            return {}
        torch.manual_seed(self._seed * 1_000_003 + number)  # of dropout, so that a resumed run is the same
        model = self.classifier.model.train()
        self._optimizer.zero_grad()
        leads: list[float] = []
        total = 0.0
        for some in self._pieces(pairs):
            lead_N = self._leads(some)
            loss = -logsigmoid(lead_N).sum() / len(pairs)
            loss.backward()
            total += loss.item()
            leads += lead_N.tolist()
        if not math.isfinite(total):
            raise LearnerError(f"the loss of update {number} is {total}. Lower algorithm.learning_rate.")
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        self._optimizer.step()
        return {
            Metric.POLICY_LOSS: total,
            Metric.PREFERENCE_ACCURACY: _share_led(leads),
            Metric.PREFERENCE_MARGIN: math.fsum(leads) / len(leads),
            Metric.GRADIENT_NORM: float(norm),
        }

    def accuracy(self, pairs: Sequence[RewardPair]) -> float:
        """The share of pairs in which the preferred answer is scored higher; a tie is half."""
        self.classifier.model.eval()
        with torch.inference_mode():
            return _share_led([lead for some in self._pieces(pairs) for lead in self._leads(some).tolist()])

    def _pieces(self, pairs: Sequence[RewardPair]) -> Iterator[Sequence[RewardPair]]:
        size = self._settings.together
        return (pairs[first : first + size] for first in range(0, len(pairs), size))

    def _leads(self, pairs: Sequence[RewardPair]) -> torch.Tensor:
        rows = [ids for pair in pairs for ids in (pair.better, pair.worse)]
        logit_N2: torch.Tensor = self.classifier.logits(rows).view(-1, 2)
        return logit_N2[:, 0] - logit_N2[:, 1]

    def save(self, folder: Path) -> None:
        """Write the classifier as `model`, and what training goes on with."""
        tokenizer = self.classifier.tokenizer
        config = self.classifier.model.config
        known = [id for id in (tokenizer.pad_token_id, tokenizer.eos_token_id) if id is not None]
        config.get_text_config().pad_token_id = known[0] if known else None
        save_model(self.classifier.model, tokenizer, folder / "model")
        torch.save(self._optimizer.state_dict(), folder / "optimizer.pt")

    def load(self, folder: Path) -> None:
        """Go on with what `save` wrote."""
        found = open_sequence_classifier(str(folder / "model"), device=str(self.classifier.model.device))
        self.classifier.model.load_state_dict(found.model.state_dict())
        self._optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))


def _share_led(leads: Sequence[float]) -> float:
    return sum(1.0 if lead > 0 else 0.5 if lead == 0 else 0.0 for lead in leads) / len(leads)
