"""A reward model: a Hugging Face sequence classifier that scores attempts, in the process that shapes rewards.

With a chat template the whole conversation is read, without one the assistant's answers alone. Nothing is cut: an
attempt longer than the classifier's context has no score.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from loomrl.canonical import content_hash
from loomrl.config.rewards import ClassifierPart
from loomrl.errors import ConfigError, JudgeError, unknown
from loomrl.files import file_hash
from loomrl.gym.grade import AttemptJudge, Grade
from loomrl.gym.judge import conversation
from loomrl.gym.rubric import read_calibration
from loomrl.types import Message, Trajectory

DIGITS = 6
"""Decimals of a score: those beyond depend on the rest of the batch."""
TEMPLATED = 1_000_000
"""Tokenizers without a limit name one above this."""


@dataclass(frozen=True, slots=True)
class SequenceClassifier:
    """A model with its tokenizer, and the number of tokens that it reads."""

    path: str
    model: Any
    tokenizer: Any
    context: int

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The token ids of a conversation; a JudgeError if there are too many, or its template refuses it."""
        if self.tokenizer.chat_template is None:
            answers = "\n".join(message.text for message in messages if message.role == "assistant")
            ids = self.tokenizer(answers, truncation=False)["input_ids"]
        else:
            said = [{"role": message.role, "content": message.text} for message in messages]
            try:
                text = self.tokenizer.apply_chat_template(said, tokenize=False)
            except Exception as error:  # the boundary to the folder's template
                raise JudgeError(f"{self.path}: its chat template refuses a conversation: {error}") from error
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if not 0 < len(ids) <= self.context:
            raise JudgeError(
                f"{self.path} reads 1 to {self.context} tokens, and the attempt has {len(ids)}. Take a classifier "
                "with a longer context, or keep attempts shorter (algorithm.model.context, sampling.max_tokens)."
            )
        return [*ids]

    def logits(self, rows: Sequence[Sequence[int]]) -> Any:
        """The logits of token ids, a row each."""
        import torch

        width = max(map(len, rows))
        pad = self._padding(rows)
        ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], device=self.model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self.model.device)
        self.model.config.get_text_config().pad_token_id = pad
        return self.model(input_ids=ids, attention_mask=mask).logits.float()

    def _padding(self, rows: Sequence[Sequence[int]]) -> int:
        """The tokenizer's padding. Models that read the last token that is not padding would read another one where a
        row ends in it, as where it is the end token too; then it is any token that ends none.
        """
        last = {row[-1] for row in rows}
        known: int | None = self.tokenizer.pad_token_id
        return known if known is not None and known not in last else min({*range(len(last) + 1)} - last)


def open_sequence_classifier(path: str, *, device: str = "cpu") -> SequenceClassifier:
    """The classifier in a folder, with all its weights; a ConfigError if it is none, or has another's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    where = f"path={path!r}"
    if not (Path(path) / "config.json").is_file():
        raise ConfigError(f"{where}: there is no config.json. Name the folder of a Hugging Face sequence classifier.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={device}: this process sees no GPU. Set device=cpu.")
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        made = ", ".join(config.architectures or ()) or "an unnamed architecture"
        if "ForSequenceClassification" not in made:
            raise ConfigError(
                f"{where} is {made} and no sequence classifier: its scores would be random. Name a folder with "
                "…ForSequenceClassification, such as a run of algorithm.kind=reward makes."
            )
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        with without_load_report():
            opened: Any = AutoModelForSequenceClassification.from_pretrained(
                path,
                local_files_only=True,
                trust_remote_code=False,
                dtype=torch.float32 if device == "cpu" else "auto",
                output_loading_info=True,
            )
    except ConfigError:
        raise
    except Exception as error:  # the boundary to what is in the folder
        raise ConfigError(f"{where}: the classifier cannot be read ({type(error).__name__}: {error}).") from error
    model, found = opened
    if wrong := sorted({*found["missing_keys"], *map(str, found["mismatched_keys"])}):
        raise ConfigError(f"{where}: {len(wrong)} weights, such as {wrong[0]}, are missing and would be random.")
    model.config.use_cache = False
    text = config.get_text_config()
    if len(tokenizer) > text.vocab_size:
        raise ConfigError(
            f"{where}: its tokenizer has {len(tokenizer)} ids and the model {text.vocab_size}. Use the tokenizer that "
            "the classifier was trained with."
        )
    limits = [getattr(text, "max_position_embeddings", None), tokenizer.model_max_length]
    context = min(int(limit) for limit in limits if limit is not None and limit < TEMPLATED)
    return SequenceClassifier(path, model.to(device).eval(), tokenizer, context)


@contextmanager
def without_load_report() -> Iterator[None]:
    """Load weights without transformers' bar and report: what is missing is said by us."""
    from transformers.utils import logging

    theirs: Any = logging
    shown = theirs.is_progress_bar_enabled()
    level = theirs.get_verbosity()
    theirs.disable_progress_bar()
    theirs.set_verbosity_error()
    try:
        yield
    finally:
        theirs.set_verbosity(level)
        if shown:
            theirs.enable_progress_bar()


class ClassifierJudge(AttemptJudge):
    """Scores attempts by a label of a classifier, the shortest first, some at a time."""

    def __init__(self, part: ClassifierPart) -> None:
        self._part = part
        self._classifier = open_sequence_classifier(part.path, device=part.device)
        self._row = self._find_label()
        self._calibration = read_calibration(part.calibration, judge=self.fingerprint, model=self.name)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loomrl-classifier")

    @cached_property
    def _files(self) -> str:
        """Hash of the folder's files."""
        digest = hashlib.sha256()
        for file in sorted(each for each in Path(self._part.path).iterdir() if each.is_file()):
            digest.update(f"{file.name} {file_hash(file)}\n".encode())
        return digest.hexdigest()

    @property
    def name(self) -> str:
        """The folder's name."""
        return Path(self._part.path).name

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a score before it is calibrated."""
        return content_hash([self._files, self._part.label, self._part.scale])

    @property
    @override
    def sha256(self) -> str:
        known = None if self._calibration is None else [[*self._calibration.judge], [*self._calibration.people]]
        return content_hash([self.fingerprint, known])

    @override
    def begin_all(self, attempts: Sequence[Trajectory]) -> list[Callable[[], Grade]]:
        scored = self._thread.submit(self.score_all, [conversation(attempt) for attempt in attempts])
        return [partial(self._wait, scored, index) for index in range(len(attempts))]

    def _wait(self, scored: "Future[list[float | JudgeError]]", index: int) -> Grade:
        score = scored.result()[index]
        if isinstance(score, JudgeError):
            raise score
        return Grade(score=score if self._calibration is None else self._calibration.of(score), who=self.name)

    def score_all(self, conversations: Sequence[Sequence[Message]]) -> list[float | JudgeError]:
        """The score of each conversation before it is calibrated, or the reason why it has none."""
        found: dict[int, float | JudgeError] = {}
        rows: dict[int, list[int]] = {}
        for at, messages in enumerate(conversations):
            try:
                rows[at] = self._classifier.encode(messages)
            except JudgeError as error:
                found[at] = error
        order = sorted(rows, key=lambda at: len(rows[at]))
        for first in range(0, len(order), self._part.batch):
            some = order[first : first + self._part.batch]
            found |= dict(zip(some, self._score([rows[at] for at in some]), strict=True))
        return [found[at] for at in range(len(conversations))]

    def _score(self, rows: Sequence[Sequence[int]]) -> list[float | JudgeError]:
        import torch

        with torch.inference_mode():
            logits = self._classifier.logits(rows)
        if self._part.scale == "logit":
            scores = logits[:, self._row]
        elif logits.shape[1] == 1 or self._classifier.model.config.problem_type == "multi_label_classification":
            scores = logits[:, self._row].sigmoid()
        else:
            scores = logits.softmax(1)[:, self._row]
        return [
            round(score, DIGITS)
            if math.isfinite(score)
            else JudgeError(f"{self._part.path} scored an attempt with {score}: a finite number is needed.")
            for score in scores.tolist()
        ]

    def _find_label(self) -> int:
        """The logit's place."""
        config = self._classifier.model.config
        labels = {str(name): int(at) for at, name in config.id2label.items()}
        if config.num_labels == 1:
            if self._part.label is not None:
                raise ConfigError(f"label={self._part.label!r}: {self._part.path} has one logit. Leave label out.")
            return 0
        if self._part.label not in labels:
            raise ConfigError(f"{self._part.path}: {unknown('label', self._part.label, labels)}")
        return labels[self._part.label]


@lru_cache(maxsize=8)
def open_classifier(part: ClassifierPart) -> ClassifierJudge:
    """The judge of a part; one per process, so that its weights are there once."""
    return ClassifierJudge(part)
