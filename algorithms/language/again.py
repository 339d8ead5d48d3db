"""A run made again from its evidence: its tasks, rewards, tokens and updates, each compared with the record.

Axes: T tokens of one answer, V the vocabulary.
"""

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel
from typing_extensions import override

from loomrl.algorithms.language.collector import TurnCollector
from loomrl.algorithms.timing import Phases
from loomrl.config import LanguagePolicy, RolloutConfig
from loomrl.errors import LoomError, PolicyError
from loomrl.gym.episode import Plan
from loomrl.gym.opponent import rival_of
from loomrl.gym.policy import PolicyFactory
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.registry import make
from loomrl.hub.codec import encode
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import Completion, Engine, EngineTurn, FinishReason, Request
from loomrl.inference.policy import Voice, speakers
from loomrl.inference.torch.rows import draw, uniforms
from loomrl.inference.weights.sealed import Sealed, Weights
from loomrl.types import Trajectory, Turn

LOGITS = 1 << 26
"""Numbers in the logits of one forward pass."""


class RecordMismatch(NamedTuple):
    """A place where the record and what was made again differ."""

    link: str
    where: str
    what: str


@dataclass(slots=True)
class AgainTally:
    """Counts of the work repeated, and the largest deviation from the record."""

    attempts: int = 0
    tokens: int = 0
    unplayed: int = 0
    """Attempts that were not played again."""
    logprob: float = 0.0
    """Largest difference of a token's log-probability."""
    margin: float = 0.0
    """Largest distance between a token's number and the part of the distribution that is the token's."""
    distance: float = 0.0
    """Largest distance of remade weights from those on record, as a share of the update's own length."""


class Tolerance(NamedTuple):
    """The largest differences that other processors may make: some multiple of what they were seen to."""

    logprob: float
    margin: float | None
    """None: an engine with random numbers of its own drew the tokens."""
    distance: float


TOLERANCES = {"float32": Tolerance(1e-4, 1e-4, 0.01), "bfloat16": Tolerance(0.4, 0.2, 0.5)}


class _RecordedAnswer(NamedTuple):
    """An answer on record, with all ids before it."""

    prompt_T: NDArray[np.int32]
    turn: Turn


class AskedAgain(NamedTuple):
    """A request of an attempt that was played again, and the answer on record."""

    attempt: str
    request: Request
    completion: Completion


class RecordedEngine(Engine):
    """Answers with the tokens on record, and only to the prompts and seeds on record."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[int, tuple[str, _RecordedAnswer]] = {}
        self.asked: list[AskedAgain] = []

    def expect(self, plan: Plan, recorded: Trajectory) -> None:
        """The answers of this attempt, by the seeds that its plan gives them."""
        rng = random.Random(plan.seed or plan.attempt.id)
        before_T = np.zeros(0, np.int32)
        for turn in recorded.turns:
            if turn.tokens is None:
                return
            prompt_T = np.concatenate([before_T, turn.tokens.ids_T[~turn.tokens.mask_T]])
            self._answers[rng.getrandbits(63)] = plan.attempt.id, _RecordedAnswer(prompt_T, turn)
            before_T = np.concatenate([before_T, turn.tokens.ids_T])

    @override
    async def _complete(self, request: Request, turn: EngineTurn) -> Completion:
        attempt, answer = self._answers.get(request.seed, ("", None))
        if answer is None:
            raise PolicyError("no answer is on record for this seed: the attempt on record has fewer turns.")
        if not np.array_equal(answer.prompt_T, request.prompt_T):
            raise PolicyError("the prompt on record has other tokens than the conversation.")
        tokens = answer.turn.tokens
        assert tokens is not None
        own_T = tokens.mask_T
        ids_T = tokens.ids_T[own_T]
        stopped = len(ids_T) > 0 and int(ids_T[-1]) in request.stop
        completion = Completion(
            ids_T,
            tokens.logprobs_T[own_T],
            tokens.versions_T[own_T],
            FinishReason.STOP if stopped else FinishReason.LENGTH,
            None if tokens.entropies_T is None else tokens.entropies_T[own_T],
            None if tokens.shifts_T is None else tokens.shifts_T[own_T],
        )
        self.asked.append(AskedAgain(attempt, request, completion))
        return completion

    @override
    async def _apply(self, sealed: Sealed) -> None:
        raise PolicyError("the record has no weights.")


def why_unplayable(plan: Plan, recorded: Trajectory) -> str | None:
    """The reason why an attempt cannot be played again from its tokens; None if it can."""
    if recorded.failure is not None:
        return "failed attempts: what failed may not fail again"
    if make(f"{plan.attempt.task.environment}@{plan.attempt.task.version}", plan.settings).player is not None:
        return "attempts of agents: their programs decide when to ask"
    if rival_of(plan.attempt.task, plan.policy) is not None:
        return "attempts against an opponent, whose answers are not on record"
    return None


def play_again(
    pairs: Sequence[tuple[Plan, Trajectory]], chat: ChatTemplate, context: int
) -> tuple[list[Trajectory], list[AskedAgain]]:
    """These plans played with the answers on record, and what was asked: prompts, texts, ends and rewards are new."""
    engine = RecordedEngine()
    for plan, recorded in pairs:
        engine.expect(plan, recorded)

    def open_policy(choice: Any) -> PolicyFactory:
        assert isinstance(choice, LanguagePolicy)
        return speakers(Voice(engine, chat, choice.sampling, context))

    played: list[Trajectory] = []

    async def play() -> None:
        async with LoomRLGym(RolloutConfig(), make=make, open_policy=open_policy) as gym:
            async for attempt in gym.run([plan for plan, _ in pairs]):
                played.append(attempt)

    asyncio.run(play())  # which prints its task when it ends, result included: so there is none
    return played, engine.asked


def compare(made: Trajectory, recorded: Trajectory) -> Iterator[RecordMismatch]:
    """The differences between a recorded attempt and its repetition."""
    if _timeless(made) == _timeless(recorded):
        return
    parts = {
        "tasks": ("task", "group", "group_size", "source", "run", "snapshot"),
        "rewards": ("end", "reward", "failure", "extra"),
    }
    found = False
    for link, names in parts.items():
        for name in names:
            here = getattr(made, name)
            there = getattr(recorded, name)
            if here != there:
                found = True
                told = (
                    made.failure.message if name == "failure" and made.failure else f"{there!r:.80}, made {here!r:.80}"
                )
                yield RecordMismatch(link, recorded.id, f"{name}: on record {told}")
    if not found:
        yield RecordMismatch("tokens", recorded.id, "its turns are not those that its tokens make")


def _timeless(attempt: Trajectory) -> bytes:
    return encode(replace(attempt, started_at=0.0, finished_at=0.0))


# -- tokens -------------------------------------------------------------------------------------------------------


def redraw(
    model: PreTrainedModel, asked: Iterable[AskedAgain], within: Tolerance, tally: AgainTally
) -> Iterator[RecordMismatch]:
    """Draw every token again from the model's distribution and the seed's numbers, given the tokens before it."""
    vocabulary = int(model.config.get_text_config().vocab_size)
    last: dict[str, list[AskedAgain]] = {}
    for one in asked:
        last.setdefault(one.attempt, []).append(one)
    waiting = sorted(last.values(), key=lambda each: len(each[-1].request.prompt_T) + len(each[-1].completion.ids_T))
    while waiting:
        longest = len(waiting[-1][-1].request.prompt_T) + len(waiting[-1][-1].completion.ids_T)
        count = max(1, LOGITS // (longest * vocabulary))
        batch = waiting[-count:]
        del waiting[-count:]
        for attempt, logits_TV in zip(batch, _logits(model, batch, longest), strict=True):
            for one in attempt:
                yield from _redraw_answer(one, logits_TV, within, tally)


def _logits(model: PreTrainedModel, batch: Sequence[Sequence[AskedAgain]], longest: int) -> Tensor:
    ids_BT = np.zeros((len(batch), longest), np.int64)
    for row, attempt in enumerate(batch):
        ids_T = np.concatenate([attempt[-1].request.prompt_T, attempt[-1].completion.ids_T])
        ids_BT[row, : len(ids_T)] = ids_T
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.from_numpy(ids_BT), use_cache=False).logits
    return logits


def _redraw_answer(
    one: AskedAgain, logits_TV: Tensor, within: Tolerance, tally: AgainTally
) -> Iterator[RecordMismatch]:
    request = one.request
    ids_T = one.completion.ids_T
    count = len(ids_T)
    fault = _wrong_end(one)
    if fault is not None:
        yield RecordMismatch("tokens", one.attempt, fault)
    first = len(request.prompt_T) - 1
    logits_CV = logits_TV[first : first + count]
    seeds_T = np.full(count, request.seed % 2**64, np.uint64)
    uniform_T = uniforms(seeds_T, np.arange(count, dtype=np.uint64))
    sampling = request.sampling
    given = torch.from_numpy(ids_T.astype(np.int64))
    scale = sampling.temperature or 1.0
    logp_CV = torch.log_softmax(logits_CV.float() / scale, -1)
    logp_C = logp_CV.gather(1, given[:, None])[:, 0]
    apart_C = np.abs(logp_C.numpy() - one.completion.logprobs_T)
    tally.tokens += count
    tally.logprob = max(tally.logprob, float(apart_C.max(initial=0.0)))
    if within.margin is not None:
        margin_C = _margins(logits_CV, logp_CV, given, sampling, uniform_T)
        tally.margin = max(tally.margin, float(margin_C.max(initial=0.0)))
        for at in np.flatnonzero(margin_C > within.margin)[:1]:
            yield RecordMismatch("tokens", one.attempt, f"token {at} is {ids_T[at]}, and its seed draws another one")
    for at in np.flatnonzero(~(apart_C <= within.logprob))[:1]:
        said = f"{one.completion.logprobs_T[at]:.5f}, and is {logp_C[at]:.5f}"
        yield RecordMismatch("tokens", one.attempt, f"token {at}: its log-probability on record is {said}")


def _margins(
    logits_TV: Tensor, logp_TV: Tensor, given_T: Tensor, sampling: Any, uniform_T: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The distance between what was drawn for each token and what is the token's: 0 where the token is drawn again."""
    count = len(given_T)
    temperature_T = torch.full((count,), float(sampling.temperature), dtype=torch.float64)
    top_p_T = torch.full((count,), float(sampling.top_p), dtype=torch.float64) if sampling.top_p < 1 else None
    drawn_T = draw(logits_TV, temperature_T, top_p_T, torch.from_numpy(uniform_T)).token_N
    margin_T = np.zeros(count)
    for at in np.flatnonzero((drawn_T != given_T).numpy()):
        weight_V = logp_TV[at].double().exp()
        if sampling.temperature == 0:
            margin_T[at] = float(weight_V.max() - weight_V[given_T[at]])
            continue
        if top_p_T is not None and weight_V[weight_V > weight_V[given_T[at]]].sum() >= sampling.top_p + 1e-3:
            margin_T[at] = 1.0
            continue
        bound_V = weight_V.cumsum(-1)
        high = float(bound_V[given_T[at]] / bound_V[-1])
        low = high - float(weight_V[given_T[at]] / bound_V[-1])
        margin_T[at] = max(low - uniform_T[at], uniform_T[at] - high, 0.0)
    return margin_T


def _wrong_end(one: AskedAgain) -> str | None:
    """A fault if the answer ends where sampling would not have ended."""
    stops = [int(id) in one.request.stop for id in one.completion.ids_T]
    if any(stops[:-1]):
        return f"token {stops.index(True)} ends the answer, and {len(stops) - stops.index(True) - 1} follow it"
    if not stops or not (stops[-1] or len(stops) == one.request.sampling.max_tokens):
        return f"the answer of {len(stops)} tokens ends neither by itself nor by its limit"
    return None


# -- a run --------------------------------------------------------------------------------------------------------


@dataclass
class RunAgain:
    """A run of a language policy on scratch databases, which goes from checkpoint to checkpoint on record."""

    algo: Any
    """`Language`, opened on a run of the same id and experiment."""
    chat: ChatTemplate
    model: PreTrainedModel
    """A model of the run's shape."""
    within: Tolerance
    exact: bool
    """True if weights must be equal in every bit."""
    tally: AgainTally = field(default_factory=AgainTally)
    unchecked: dict[str, str] = field(default_factory=dict)
    """Link → the reason why a part of it could not be checked."""

    def stretch(
        self,
        first: Path,
        last: Path,
        *,
        updates: Callable[[int], list[Trajectory]],
        leased: Callable[[int], Sequence[str]],
    ) -> Iterator[RecordMismatch]:
        """Make the updates from one checkpoint to the next one again, and all that belongs to them."""
        try:
            self.algo.rewind(first)
        except LoomError as error:
            yield RecordMismatch("update", f"{self.algo.source.run}", f"its checkpoint cannot be gone on from: {error}")
            return
        start = {name: tensor.clone() for name, tensor in self._module().items()}
        end = int(json.loads((last / "line.json").read_text())["done"])
        while self.algo.done < end:
            update = self.algo.done
            try:
                groups = yield from self._groups(update, updates(update), leased(update))
                self.algo.remake(groups)
            except LoomError as error:
                yield RecordMismatch("update", f"{self.algo.source.run}/{update + 1}", str(error))
                return
        yield from self._compare_state(last, start)

    def _groups(self, update: int, recorded: list[Trajectory], leased: Sequence[str]) -> Any:
        """The groups of an update, once its attempts are compared with what the seed and the weights make."""
        source = self.algo.source
        if not isinstance(source, TurnCollector):
            groups, _ = source.collect(self.algo.actor(update), Phases())
            return groups
        policy = self.algo.actor(update - update % source.experiment.rollout.publish_every)
        known = {attempt.id: attempt for attempt in recorded}
        of_a_try = source.experiment.rollout.groups_per_update
        tries = 1 + max((int(name.rpartition("/")[2]) for name in leased), default=0) // of_a_try
        before = source.tasks.state_dict()
        plans = [plan for number in range(tries) for plan in source.plan(policy, number)]
        source.tasks.load_state_dict(before)  # collect() draws them itself
        for plan in plans:
            if plan.attempt.id not in known:
                yield RecordMismatch("tasks", plan.attempt.id, "the attempt is not in the evidence")
                return []
        for id in known.keys() - {plan.attempt.id for plan in plans}:
            yield RecordMismatch("tasks", id, f"the seed plans no such attempt in update {update + 1}")
        pairs = [(plan, known[plan.attempt.id]) for plan in plans]
        yield from self.attempts(pairs, weights=self.algo.weights() if policy.version == update else None)
        source.hub.append(recorded)
        source.play = _missing
        groups, _ = source.collect(policy, Phases())
        names = [group.id for group in groups]
        if sorted(names) != sorted(leased):
            other = sorted(set(names) ^ set(leased))[0]
            yield RecordMismatch("update", f"{source.run}/{update + 1}", f"group {other}: leased on one side only")
        return groups

    def attempts(
        self, pairs: Sequence[tuple[Plan, Trajectory]], *, weights: Weights | None
    ) -> Iterator[RecordMismatch]:
        """Play these attempts again, and draw their tokens again with these weights."""
        playable = []
        for plan, recorded in pairs:
            reason = why_unplayable(plan, recorded)
            if reason is None:
                playable.append((plan, recorded))
            else:
                self.tally.unplayed += 1
                self.unchecked["rewards"] = self.unchecked["tokens"] = reason
        played, asked = play_again(playable, self.chat, self.algo.config.algorithm.model.context)
        self.tally.attempts += len(played)
        yield from self._compare(playable, played)
        if weights is None:
            self.unchecked["tokens"] = "updates between two publications: the weights that sampled are not at hand"
            return
        self.model.load_state_dict(dict(weights))
        odd = [one for one in asked if one.request.shifts or one.request.sights]
        if odd:
            self.unchecked["tokens"] = "answers in a form, or to pictures: their odds are not made again"
        plain = [one for one in asked if not (one.request.shifts or one.request.sights)]
        yield from redraw(self.model, plain, self.within, self.tally)

    def _compare(
        self, pairs: Sequence[tuple[Plan, Trajectory]], played: Sequence[Trajectory]
    ) -> Iterator[RecordMismatch]:
        made = {attempt.id: attempt for attempt in played}
        ordered = [made[plan.attempt.id] for plan, _ in pairs]
        source = self.algo.source
        is_rollout = isinstance(source, TurnCollector) and all(recorded.source == "rollout" for _, recorded in pairs)
        if is_rollout and source.shaping.judges:
            self.unchecked["rewards"] = "parts of rewards that a model judged"
            return
        shaped = source.shaping.shape(ordered) if is_rollout else ordered
        for (_, recorded), attempt in zip(pairs, shaped, strict=True):
            yield from compare(attempt, recorded)

    def _module(self) -> Mapping[str, Tensor]:
        module: Mapping[str, Tensor] = self.algo.whole_state()["learner"]["module"]
        return module

    def begin(self, first: Path) -> Iterator[RecordMismatch]:
        """Make the first version again, on an algorithm that has done nothing yet."""
        self.algo.source  # noqa: B018 - opens the run
        self.algo.warm_up()
        here = self._module()
        there = torch.load(first / "state.pt", weights_only=True, mmap=True)["learner"]["module"]
        where = f"{self.algo.source.run}/0"
        if self.exact and not same(here, there):
            yield RecordMismatch("origin", where, _unequal(here, there))
        elif not self.exact:
            self.unchecked["origin"] = "other arithmetic than on record: a warm start is not repeatable there"

    def _compare_state(self, last: Path, start: Mapping[str, Tensor]) -> Iterator[RecordMismatch]:
        where = f"{self.algo.source.run}/{self.algo.done}"
        recorded = torch.load(last / "state.pt", weights_only=True, mmap=True)
        made = self.algo.whole_state()
        there = recorded["learner"]["module"]
        here = made["learner"]["module"]
        apart = distance(here, there, start)
        self.tally.distance = max(self.tally.distance, apart)
        if self.exact:
            other = [name for name in ("learner", "schedule", "updates_made") if not same(made[name], recorded[name])]
            if other:
                yield RecordMismatch("update", where, f"{other[0]}: {_unequal(here, there)} (distance {apart:.2g})")
        elif not apart <= self.within.distance:
            yield RecordMismatch(
                "update", where, f"weights are {apart:.2g} of the updates' length from those on record"
            )


def distance(here: Mapping[str, Tensor], there: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """How far apart two outcomes of an update are, as a share of its length."""
    if here.keys() != there.keys() or any(here[name].shape != there[name].shape for name in here):
        return float("inf")
    apart = sum(float((here[name].double() - there[name].double()).square().sum()) for name in here)
    length = sum(float((here[name].double() - start[name].double()).square().sum()) for name in here)
    return float(np.sqrt(apart / length)) if length else (0.0 if apart == 0 else float("inf"))


def same(left: Any, right: Any) -> bool:
    """True if two states are equal in every bit."""
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and left.dtype == right.dtype and torch.equal(left.cpu(), right.cpu())
    if isinstance(left, Mapping):
        return isinstance(right, Mapping) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return isinstance(right, list | tuple) and len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _unequal(here: Mapping[str, Tensor], there: Mapping[str, Tensor]) -> str:
    other = sorted(name for name in here.keys() | there.keys() if not same(here.get(name), there.get(name)))
    return (
        f"{len(other)} of {len(here)} tensors differ, such as {other[0]}" if other else "the optimizer's state differs"
    )


def _missing(plans: Sequence[Plan]) -> list[Trajectory]:
    if plans:
        raise PolicyError(f"attempt {plans[0].attempt.id} is not in the evidence.")
    return []
