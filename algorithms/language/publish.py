"""Publication: new weights go to all engines, and are used only after every engine has proved that it has them.

Weights are sealed in the learner, verified on arrival, and read back if the engine supports it; then each engine
answers a few prompts, and the learner computes the log-probabilities of exactly the sampled ids.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.runner_group import RunnerGroup
from loomrl.config import Sampling
from loomrl.config.engine import Checks
from loomrl.errors import LearnerError, PolicyError
from loomrl.inference.engine import Completion, Request, Sight
from loomrl.inference.model import vocabulary_of
from loomrl.inference.vision import Vision, open_vision
from loomrl.inference.weights.loan import LentWeights
from loomrl.inference.weights.sealed import Sealed
from loomrl.picture import to_png
from loomrl.telemetry.metric import Metric

PROMPT_TOKENS = 257
"""Length of the longest probe if the context has room: vLLM caches blocks of 16 tokens on GPUs and up to 128 on
CPUs.
"""
ANSWER_TOKENS = 8
TOLERANCE = {"float32": 2e-3, "bfloat16": 0.4, "float16": 0.06}
"""Tolerated difference of engine and learner by the model's dtype: twice the worst measured on healthy engines."""
STIRRED = 0.05
"""Share of the tolerance by which the learner's answers must have moved before an unmoved engine is an error."""
REMEDY = {
    "torch": "compare with algorithm.model.dtype=float32, where engine and learner differ least",
    "vllm": "compare with engine.kind=torch, which runs the learner's own model",
    "openai": "compare the model and the dtype that the server was started with, or try engine.kind=torch",
}
"""Checks to make if an engine cannot prove its weights, by its kind."""

Known = dict[tuple[int, bytes], NDArray[np.float32]]
"""The learner's log-probabilities of sampled ids, by probe and ids."""

_log = logging.getLogger(__name__)


class Probing(NamedTuple):
    """The probes for engines."""

    checks: Checks
    tolerance: float
    requests: tuple[Request, ...]
    remedy: str = REMEDY["torch"]
    cached: bool = True
    """False if engines have given their caches back when new weights come, so that nothing in them can be stale."""

    @staticmethod
    def of(
        checks: Checks,
        *,
        vocabulary: int,
        context: int,
        dtype: str,
        temperature: float = 1.0,
        vision: Vision | None = None,
    ) -> "Probing":
        """Prompts of fixed ids, equal in every update, so that stale cache entries show.

        The first is as long as possible, the others are shorter in equal steps down to a single token, so that sampling
        covers positions from the start on. A model with vision sees a picture in the first of them.
        """
        room = min(ANSWER_TOKENS, context - 1)
        longest = max(1, min(PROMPT_TOKENS, context - room))
        sampling = Sampling(temperature=temperature, max_tokens=room)
        ids_PT = np.random.default_rng(0).integers(0, vocabulary, (checks.probes, longest)).astype(np.int32)
        lengths = np.linspace(longest, 1, checks.probes).astype(int)
        requests = [
            Request(ids_T[:length], sampling, frozenset(), seed)
            for seed, (ids_T, length) in enumerate(zip(ids_PT, lengths, strict=True))
        ]
        if vision is not None:
            requests[:1] = [_with_picture(request, vision) for request in requests[:1]]
        return Probing(checks, checks.tolerance or TOLERANCE[dtype], tuple(requests))

    @staticmethod
    def of_run(config: Any) -> "Probing":
        """The probes of a run's `LanguageConfig`."""
        algorithm = config.algorithm
        engine = config.experiment.engine
        trusts = algorithm.model.trust_remote_code
        probing = Probing.of(
            engine.checks,
            vocabulary=vocabulary_of(config.origin, trust_remote_code=trusts),
            context=algorithm.model.context,
            dtype=algorithm.model.dtype,
            temperature=config.resolved.temperature,
            vision=open_vision(config.origin, trust_remote_code=trusts),
        )
        return probing._replace(remedy=REMEDY[engine.kind], cached=not config.experiment.placement.colocated)

    @property
    def brief(self) -> list[Request]:
        """The same prompts for a single token: a working cache holds them afterwards."""
        return [replace(one, sampling=one.sampling.model_copy(update={"max_tokens": 1})) for one in self.requests]


class Publisher:
    """Publishes the learners' weights to a fleet; retries once if an engine fails, and never fails silently.

    `learners` calls all learners and returns the first one's result.
    """

    def __init__(self, fleet: RunnerGroup, learners: Callable[[Callable[[Any], Any]], Any], probing: Probing) -> None:
        self._fleet = fleet
        self._learners = learners
        self.probing = probing
        self._cached = False
        self._before: tuple[Known, list[list[Completion]]] = {}, []
        self._alarmed = False
        self._seconds: dict[str, float] = {}
        self._distance: float | None = None
        self._repeated = 0

    def publish(self, version: int) -> None:
        """Give every engine the learners' weights under this version, proved; else a PolicyError."""
        self._seconds = {}
        self._distance = None
        sealed: Sealed | LentWeights = self._time("seal", lambda: self._learners(lambda learner: learner.seal(version)))
        try:
            if self._cached:
                self._time("probe", lambda: self._fleet.probe(self.probing.brief))
            self._deliver(sealed)
        except PolicyError as error:
            _log.warning("version %d is published once more: %s", version, error)
            self._repeated += 1
            self._reject(error)
            try:
                self._deliver(sealed)
            except PolicyError as again:
                self._reject(again)
                raise PolicyError(
                    f"version {version} was published twice, and an engine could not prove that it has it. {again} "
                    "No engine acts with it. Resume the run from its last checkpoint; if it fails again, "
                    f"{self.probing.remedy}."
                ) from again
        self._time("load", lambda: self._fleet.admit(version))
        self._cached = self.probing.cached and bool(self.probing.requests)

    def metrics(self) -> dict[str, float]:
        """Metrics of the latest publication, returned once."""
        if not self._seconds:
            return {}
        found = {Metric.TIME_PUBLISH.of(part): seconds for part, seconds in self._seconds.items()}
        if self._distance is not None:
            found[Metric.PUBLISH_DISTANCE] = self._distance
        self._seconds = {}
        return found | {str(Metric.PUBLISH_REPEATED): float(self._repeated)}

    def alarm(self, drift: float | None) -> dict[str, float]:
        """A metric of whether engine and learner disagree too much about an update's tokens; logged once."""
        if drift is None:
            return {}
        raised = not drift <= self.probing.checks.drift
        if raised and not self._alarmed:
            self._alarmed = True
            _log.warning(
                "engine and learner differ by %.3f over the log-probability of a sampled token, more than "
                "engine.checks.drift=%g: compare their dtype, and how old the attempts are (hub.max_staleness).",
                drift,
                self.probing.checks.drift,
            )
        return {Metric.POLICY_DRIFT_ALARM: float(raised)}

    def _deliver(self, sealed: Sealed | LentWeights) -> None:
        self._time("load", lambda: self._fleet.load(sealed))
        if self.probing.requests:
            self._time("probe", lambda: self._prove(sealed.version))

    def _prove(self, version: int) -> None:
        """A PolicyError names the engine that is furthest off, and its distance."""
        answers = self._fleet.probe(self.probing.requests)
        if not answers:
            raise PolicyError("No engine answered its probes: none is alive.")
        known = self._recompute(answers)
        worst: tuple[float, str] = (-1.0, "")
        for engine, given in enumerate(answers):
            for probe, completion in enumerate(given):
                where = f"Engine {engine}, probe {probe}"
                other = sorted({*map(int, completion.versions_T)} - {version})
                if other:
                    raise PolicyError(f"{where}: it answered with tokens of version {other}, not {version}.")
                apart_T = np.abs(completion.logprobs_T - known[probe, completion.ids_T.tobytes()])
                worst = max(worst, (float(np.nan_to_num(apart_T, nan=np.inf).max()), where))
        self._distance, where = worst
        if self._distance > self.probing.tolerance:
            self._refuse_undecided(answers, known)
            raise PolicyError(
                f"{where}: a log-probability is {self._distance:.3g} off what the learner says of the same token, "
                f"and may be {self.probing.tolerance:g} off (engine.checks.tolerance)."
            )
        self._refuse_unmoved(answers, known)
        self._before = known, answers

    def _refuse_undecided(self, answers: Sequence[Sequence[Completion]], known: Known) -> None:
        """A learner whose repeated answers differ cannot be the standard for engines."""
        again = self._recompute(answers)
        apart = max(float(np.abs(again[key] - known[key]).max()) for key in known)
        if apart > self.probing.tolerance:
            raise LearnerError(
                f"the learner was asked twice how probable the same tokens are, and its answers are {apart:.3g} apart: "
                "its forward pass draws random numbers, so no engine can be compared with it. Engines and weights are "
                "not at fault. Choose a model whose forward pass in evaluation mode is repeatable."
            )

    def _refuse_unmoved(self, answers: Sequence[Sequence[Completion]], known: Known) -> None:
        """An engine with bit-identical answers, while the learner's have moved, has missed a small step."""
        known_before, before = self._before
        for engine, (given, last) in enumerate(zip(answers, before, strict=False)):
            if all(map(_same, given, last)):
                keys = [(probe, completion.ids_T.tobytes()) for probe, completion in enumerate(given)]
                moved = max(float(np.abs(known[key] - known_before[key]).max()) for key in keys)
                if moved > STIRRED * self.probing.tolerance:
                    raise PolicyError(
                        f"Engine {engine}: it answers its probes bit by bit as it did before the update, while the "
                        f"learner's log-probabilities of the same tokens have moved by up to {moved:.3g}."
                    )

    def _recompute(self, answers: Sequence[Sequence[Completion]]) -> Known:
        """The learner's log-probabilities, by probe and sampled ids; equal answers of engines are computed once."""
        samples = {
            (probe, completion.ids_T.tobytes()): Sample(
                np.concatenate([request.prompt_T, completion.ids_T]),
                np.repeat([False, True], [len(request.prompt_T), len(completion.ids_T)]),
                pictures=tuple(sight.picture for sight in request.sights),
            )
            for given in answers
            for probe, (request, completion) in enumerate(zip(self.probing.requests, given, strict=True))
        }
        found = self._learners(lambda learner: learner.recompute([*samples.values()]))
        return dict(zip(samples, found, strict=True))

    def _reject(self, error: PolicyError) -> None:
        self._cached = False
        self._fleet.reject(str(error))

    def _time(self, part: str, call: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        try:
            return call()
        finally:
            self._seconds[part] = self._seconds.get(part, 0.0) + time.perf_counter() - begun


def _with_picture(request: Request, vision: Vision) -> Request:
    """The request with a noise picture first, if the prompt has room for it."""
    picture = to_png(np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8))
    shown_T = vision.seen(picture).ids_T
    if len(shown_T) >= len(request.prompt_T):
        return request
    text_T = request.prompt_T[len(shown_T) :]
    text_T = np.where(text_T == vision.image_token, 0, text_T)
    return replace(request, prompt_T=np.concatenate([shown_T, text_T]), sights=(Sight(picture, 0),))


def _same(one: Completion, other: Completion) -> bool:
    return np.array_equal(one.ids_T, other.ids_T) and np.array_equal(one.logprobs_T, other.logprobs_T)
