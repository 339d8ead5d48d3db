"""Candidates judged from logs, against counted values: tables by arithmetic, a tiny model by all its tokens."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import LlamaForCausalLM

from loomrl.algorithms.language.build import build_reading
from loomrl.config import Architecture, DataSelection, Experiment, LanguagePolicy, Sampling
from loomrl.errors import ConfigError, DataError
from loomrl.experiments.gate.logged import check_logged_sessions, usable_rows
from loomrl.experiments.gate.party import Party, find_parties
from loomrl.feedback.dataset import freeze
from loomrl.inference.chat import Transcript
from loomrl.inference.engine import Request
from loomrl.inference.policy import Voice, open_voice
from loomrl.release.gate.check import CheckState, GateCheck, strategy_of
from loomrl.release.gate.logged import EFFECTIVE, LoggedSession, check_sessions, difference_of, value_of
from loomrl.run.record import begin_run
from loomrl.serving.call import Drawing
from loomrl.serving.recording.trajectory import callers_sampling
from loomrl.store import open_store
from loomrl.store.datasets import read_rows
from loomrl.store.verdicts import VerdictOutcome
from loomrl.types import End, Message, Reward, Source, Task, Tokens, Trajectory, Turn
from tests.algorithms.language_support import QUIET
from tests.command_line import typed_json
from tests.feedback.served_support import ENDPOINT, reward, store, url
from tests.feedback.test_dataset import fill, session, version
from tests.release.gate_support import suite

Floats = NDArray[np.float64]
PROMPTS = 6
CHOICES = 8


@dataclass(frozen=True)
class Tables:
    """Two versions that answer `turns` times, by tables of logits; the reward is a coin of the answers' mean worth."""

    served_TXA: Floats
    candidate_TXA: Floats
    worth_TXA: Floats

    @staticmethod
    def drawn(rng: np.random.Generator, *, turns: int, change: float, worse: float = 0.0) -> "Tables":
        shape = (turns, PROMPTS, CHOICES)
        logits = rng.normal(size=shape)
        worth = rng.uniform(size=shape)
        moved = logits + change * rng.normal(size=shape) - worse * (worth - 0.5)
        return Tables(_softmax(logits), _softmax(moved), worth)

    def log(self, rng: np.random.Generator, count: int) -> list[LoggedSession]:
        asked = rng.integers(PROMPTS, size=count)
        logs, worth = [], []
        for served_XA, candidate_XA, worth_XA in zip(self.served_TXA, self.candidate_TXA, self.worth_TXA, strict=True):
            bounds = served_XA[asked].cumsum(-1)
            said = np.minimum((rng.random((count, 1)) > bounds).sum(-1), CHOICES - 1)
            logs.append(np.log(candidate_XA[asked, said] / served_XA[asked, said]))
            worth.append(worth_XA[asked, said])
        rewards = (rng.random(count) < np.mean(worth, 0)).astype(float)
        return [LoggedSession(ratios, float(one)) for ratios, one in zip(np.stack(logs, 1), rewards, strict=True)]

    @property
    def value(self) -> float:
        return float((self.candidate_TXA * self.worth_TXA).sum(-1).mean())

    @property
    def served(self) -> float:
        return float((self.served_TXA * self.worth_TXA).sum(-1).mean())


def _softmax(logits: Floats) -> Floats:
    odds: Floats = np.exp(logits - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def coverage(trials: int, *, seed: int, counts: Sequence[int] = (300, 1000)) -> dict[str, float]:
    """Shares of 95 % intervals that hold the counted value; answers add up, so both levels have the same one."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {"session": [], "answer": [], "value": []}
    for number in range(trials):
        tables = Tables.drawn(rng, turns=1 + number % 3, change=(0.2, 0.5)[number % 2])
        log = tables.log(rng, counts[number % len(counts)])
        change = tables.value - tables.served
        for level in ("session", "answer"):
            found = difference_of(log, level, error_rate=0.05)  # type: ignore[arg-type]
            held[level].append(found.low <= change <= found.high)
        value = value_of(log, error_rate=0.05)
        held["value"].append(value.low <= tables.value <= value.high)
    return {name: float(np.mean(each)) for name, each in held.items()}


def test_intervals_hold_the_counted_value() -> None:
    found = coverage(40, seed=1)
    assert min(found.values()) >= 0.93, found


@pytest.mark.slow
def test_intervals_hold_the_counted_value_in_300_logs_of_candidates() -> None:
    found = coverage(300, seed=2, counts=(250, 500, 1000, 3000))
    print(found)
    assert min(found.values()) >= 0.93, found


def refused(trials: int, *, seed: int, worse: float) -> float:
    """Share of candidates refused, of those whose log is worth enough."""
    rng = np.random.default_rng(seed)
    spoken = []
    while len(spoken) < trials:
        tables = Tables.drawn(rng, turns=1 + len(spoken) % 2, change=0.2, worse=worse)
        check = check_sessions("log", tables.log(rng, 1500), {}, error_rate=0.05)
        if check.state is not CheckState.NOT_APPLICABLE:
            spoken.append(check.state is CheckState.FAILED)
    return float(np.mean(spoken))


@pytest.mark.slow
def test_small_losses_are_refused_in_100_candidates_and_no_loss_in_300() -> None:
    rng = np.random.default_rng(11)
    losses, found = [], []
    for number in range(100):
        tables = Tables.drawn(rng, turns=1 + number % 2, change=0.2, worse=0.5)
        losses.append(tables.served - tables.value)
        found.append(check_sessions("log", tables.log(rng, 1500), {}, error_rate=0.05).state is CheckState.FAILED)
    print("loss", np.mean(losses), "refused", np.mean(found))
    assert np.mean(found) >= 0.8
    rng = np.random.default_rng(12)
    wrong = 0
    for number in range(300):
        tables = Tables.drawn(rng, turns=1 + number % 2, change=0.3, worse=-0.3)
        if tables.value < tables.served:
            tables = Tables(tables.candidate_TXA, tables.served_TXA, tables.worth_TXA)
        wrong += check_sessions("log", tables.log(rng, 500), {}, error_rate=0.05).state is CheckState.FAILED
    print("refused without a loss", wrong)
    assert wrong <= 0.05 * 300


def test_worse_candidates_are_refused_and_equal_ones_are_not() -> None:
    assert refused(20, seed=3, worse=1.5) >= 0.8
    rng = np.random.default_rng(4)
    tables = Tables.drawn(rng, turns=2, change=0.0)
    equal = replace(tables, candidate_TXA=tables.served_TXA)
    assert check_sessions("log", equal.log(rng, 500), {}, error_rate=0.05).state is CheckState.PASSED


@pytest.mark.parametrize(("change", "share"), [(0.1, 0.25), (0.7, 0.05), (3.0, 0.05)])
def test_a_canary_begins_further_on_if_logs_exclude_what_its_guards_accept(change: float, share: float) -> None:
    rng = np.random.default_rng(7)
    tables = Tables.drawn(rng, turns=1, change=change)
    check = check_sessions("log", tables.log(rng, 400), {}, error_rate=0.05)
    assert strategy_of(VerdictOutcome.ALLOWED, None, [check]) == ("canary", share)
    assert strategy_of(VerdictOutcome.REFUSED, None, [check]) == ("stop", 0.0)


def test_nothing_is_said_below_the_size() -> None:
    rng = np.random.default_rng(5)
    silent = 0
    for number in range(30):
        tables = Tables.drawn(rng, turns=3, change=(0.3, 3.0)[number % 2], worse=3.0)
        log = tables.log(rng, (150, 400, 1000)[number % 3])
        check = check_sessions("log", log, {}, error_rate=0.05)
        worth = check.figures["effective"]
        spoken = {each["level"] for each in check.figures.get("differences", ())}
        assert spoken == {level for level, size in worth.items() if size >= EFFECTIVE}
        if not spoken:
            silent += 1
            assert check.state is CheckState.NOT_APPLICABLE
            assert "too little to say: effective n=" in check.reason
            assert not {"value", "differences"} & check.figures.keys()
    assert 10 <= silent < 30
    assert check_sessions("log", [], {"without a reward": 3}, error_rate=0.05).reason.startswith("too little to say")


def test_a_ratio_that_is_almost_infinite_makes_no_false_proof() -> None:
    rng = np.random.default_rng(6)
    log = Tables.drawn(rng, turns=1, change=0.2).log(rng, 400)
    log[7] = LoggedSession(np.array([900.0]), 0.0)
    found = difference_of(log, "session", error_rate=0.05)
    assert np.isfinite([found.mean, found.low, found.high]).all()
    assert found.effective < 2
    assert check_sessions("log", log, {}, error_rate=0.05).state is CheckState.NOT_APPLICABLE


SERVED = "served"

# -- a tiny model ----------------------------------------------------------------------------------------------------

SESSIONS = 360
UNUSABLE: dict[int, tuple[str, dict[str, Any]]] = {
    3: ("drawn otherwise than by one temperature", {"drawn": [{"temperature": 0.0}]}),
    4: ("drawn otherwise than by one temperature", {"drawn": [{"top_p": 0.9}]}),
    5: ("drawn otherwise than by one temperature", {"drawn": [{}, {"temperature": 0.5}]}),
    6: ("answered by other versions", {"versions": [SERVED, "another"]}),
}
"""Sessions by their number: why they are left out, and what is on record of them."""
UNJUDGED = 8


@dataclass(frozen=True)
class Production:
    """Sessions of one or two answers that a tiny model served; their rewards make the candidate worse."""

    folder: Path
    candidate: str
    dataset: str
    change: float
    """Candidate minus production: counted over all tokens."""


def save_models(folder: Path) -> None:
    """The served model, and a candidate with weights near to it."""
    architecture = Architecture(hidden_size=32, intermediate_size=64, layers=1, heads=2, vocabulary=270)
    model, tokenizer, _ = build_reading(architecture, ["Tell me about 1."], context=256, seed=0)
    _save(model, tokenizer, folder / SERVED)
    torch.manual_seed(1)
    with torch.no_grad():
        model.lm_head.weight += 0.03 * torch.randn_like(model.lm_head.weight)
    _save(model, tokenizer, folder / "candidate")


def _save(model: LlamaForCausalLM, tokenizer: Any, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def voice_of(folder: Path, name: str) -> Voice:
    return open_voice(LanguagePolicy(path=str(folder / name), context=256, sampling=Sampling(max_tokens=1)))


async def serve(voice: Voice, number: int) -> Trajectory:
    """A session of one answer, or of two."""
    transcript = Transcript(voice.chat)
    turns = []
    for text in (f"Number {number}?", "And then?")[: 1 + number % 2]:
        asked = (Message("user", text),)
        prompt_T = transcript.observe(asked)
        drawn = await voice.engine.generate(Request(transcript.ids, voice.sampling, voice.chat.stop, number))
        transcript.append_sampled(drawn.ids_T)
        tokens = Tokens.sampled(prompt_T, drawn.ids_T, drawn.logprobs_T, drawn.versions_T)
        turns.append(Turn(asked, voice.chat.decode(drawn.ids_T), tokens=tokens))
    return Trajectory(
        id=f"s{number}",
        task=Task(ENDPOINT, SERVED, "session", 1, 0),
        turns=tuple(turns),
        end=End.TERMINATED,
        reward=Reward(),
        group=f"s{number}",
        source=Source.PRODUCTION,
        extra={"session": {"versions": [SERVED], "drawn": [{}]} | UNUSABLE.get(number, ("", {}))[1]},
    )


def first_odds(folder: Path, name: str, attempts: Sequence[Trajectory]) -> Floats:
    """The probabilities of each first token, `[S, V]`."""
    model = LlamaForCausalLM.from_pretrained(folder / name)
    odds = []
    for attempt in attempts:
        tokens = attempt.turns[0].tokens
        assert tokens is not None
        ids = torch.from_numpy(tokens.ids_T[:-1].astype(np.int64))[None]
        with torch.no_grad():
            odds.append(torch.softmax(model(ids).logits[0, -1].double(), -1).numpy())
    return np.stack(odds)


@QUIET
@pytest.mark.slow
def test_intervals_hold_the_value_of_tiny_models_in_300_logs(tmp_path: Path) -> None:
    """Ten candidates, thirty logs of each; half of them are worse by construction, half better."""
    save_models(tmp_path)
    voice = voice_of(tmp_path, SERVED)

    async def ask() -> list[Trajectory]:
        return [await serve(voice, 2 * number) for number in range(300)]

    attempts = asyncio.run(ask())
    old_SV = first_odds(tmp_path, SERVED, attempts)
    rng = np.random.default_rng(7)
    held, refused_worse, refused_better = [], [], []
    for number in range(10):
        model = LlamaForCausalLM.from_pretrained(tmp_path / SERVED)
        torch.manual_seed(number)
        with torch.no_grad():
            model.lm_head.weight += (0.01, 0.02, 0.03)[number % 3] * torch.randn_like(model.lm_head.weight)
        model.save_pretrained(tmp_path / "near")
        new_SV = first_odds(tmp_path, "near", attempts)
        worth_SV = ((new_SV < old_SV) if number % 2 else (new_SV > old_SV)).astype(float)
        change = float(((new_SV - old_SV) * worth_SV).sum(-1).mean())
        for _ in range(30):
            said_S = (rng.random((300, 1)) > old_SV.cumsum(-1)).sum(-1).clip(max=old_SV.shape[1] - 1)
            at = (np.arange(300), said_S)
            log = [
                LoggedSession(np.array([ratio]), float(worth))
                for ratio, worth in zip(np.log(new_SV[at] / old_SV[at]), worth_SV[at], strict=True)
            ]
            found = difference_of(log, "session", error_rate=0.05)
            held.append(found.low <= change <= found.high)
            state = check_sessions("log", log, {}, error_rate=0.05).state
            (refused_worse if number % 2 else refused_better).append(state is CheckState.FAILED)
        print(f"{change:+.3f}", found)
    print("held", np.mean(held), "worse refused", np.mean(refused_worse), "better refused", np.mean(refused_better))
    assert np.mean(held) >= 0.93
    assert np.mean(refused_worse) >= 0.8
    assert not any(refused_better)


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Production:
    folder = tmp_path_factory.mktemp("production")
    save_models(folder)
    voice = voice_of(folder, SERVED)

    async def all_served() -> list[Trajectory]:
        return list(await asyncio.gather(*(serve(voice, number) for number in range(SESSIONS))))

    attempts = asyncio.run(all_served())
    store(folder, ENDPOINT, attempts)
    old_SV = first_odds(folder, SERVED, attempts)
    new_SV = first_odds(folder, "candidate", attempts)
    worth_SV = (new_SV < old_SV).astype(float)  # what the candidate says less often was right
    said_S = [int(one.turns[0].tokens.ids_T[-1]) for one in attempts if one.turns[0].tokens is not None]
    with open_store(url(folder)) as db:
        reward(db, {one.id: worth_SV[at, said_S[at]] for at, one in enumerate(attempts) if at != UNJUDGED})
        selection = DataSelection.parse({"endpoints": [ENDPOINT], "holdout": 0.95, "parent": str(folder / SERVED)})
        dataset = freeze(db, url(folder), selection, now=4.0)
    change = float(((new_SV - old_SV) * worth_SV).sum(-1).mean())
    return Production(folder, str(folder / "candidate"), dataset.id, change)


def check(production: Production, candidate: str, against: str = SERVED, **changes: Any) -> GateCheck:
    asked = suite(**changes)
    with open_store(url(production.folder)) as db:
        parties = find_parties(candidate, str(production.folder / against), asked, db)
        return check_logged_sessions(production.dataset, parties, asked, db)


@QUIET
def test_candidate_of_a_tiny_model_is_refused_from_logs_by_a_value_that_can_be_counted(production: Production) -> None:
    found = check(production, production.candidate)
    assert found.state is CheckState.FAILED, found.reason
    whole, single = found.figures["differences"]
    assert production.change < -0.05
    assert whole["low"] <= production.change <= whole["high"]
    assert single["effective"] > whole["effective"] >= EFFECTIVE
    left = found.figures["left_out"]
    assert sum(left.values()) + found.figures["sessions"] == SESSIONS
    assert left.keys() >= {"without a reward", *(why for why, _ in UNUSABLE.values())}
    assert left["drawn otherwise than by one temperature"] == 3
    same = check(production, str(production.folder / SERVED))
    assert same.state is CheckState.PASSED
    assert same.figures["differences"][0]["effective"] == pytest.approx(same.figures["sessions"], rel=1e-3)


@QUIET
def test_record_of_another_version_is_refused_by_the_probabilities(production: Production) -> None:
    (production.folder / "other").mkdir(exist_ok=True)
    target = production.folder / "other" / SERVED
    if not target.exists():
        target.symlink_to(production.folder / "candidate")
    with pytest.raises(DataError, match="other probabilities than are on record"):
        check(production, production.candidate, against=f"other/{SERVED}")


def test_sessions_that_the_candidate_learnt_from_are_left_out(store_url: str) -> None:
    fill(store_url, *(session(f"s{number}") for number in range(5)))
    with open_store(store_url) as db:
        for run in ("r", "other"):
            begin_run(db, Experiment(name=run), {}, id=run, kind="train")
        version(db, 3)
        selection = DataSelection.parse({"endpoints": [ENDPOINT], "holdout": 0.0, "parent": "r/3"})
        made = freeze(db, store_url, selection, now=4.0)
        version(db, 0, run="other", parent="r/3", dataset=made.id)
        rows = read_rows(db, made.id)
        left: Counter[str] = Counter()
        assert not list(usable_rows(rows, Party("other/0", version="other/0"), "r/3", db, left))
        assert left == {"learnt by the candidate": 5}
        assert list(usable_rows(rows, Party("r/3", version="r/3"), "r/3", db, left)) == rows


def test_settings_that_callers_gave_are_kept_with_the_session() -> None:
    plain, cold = Drawing(), Drawing(temperature=0.0, top_p=1.0)
    assert callers_sampling([plain, cold, plain]) == [{}, {"temperature": 0.0}]
    assert callers_sampling([Drawing(top_p=0.5)]) == [{"top_p": 0.5}]


@QUIET
def test_command_refuses_by_logs_what_the_suite_lets_pass(production: Production) -> None:
    words = ["gate", production.candidate, "--logged", production.dataset, "--store", url(production.folder)]
    small = ["benchmarks.0.episodes=4", "benchmarks.0.at_least=null", "regression=null", "safety={}", "cost=null"]
    words += ["--suite", "language_tiny", *small, "max_tokens=2"]
    verdict = typed_json(*words, "--against", str(production.folder / SERVED), code=1)
    assert verdict["outcome"] == "refused"
    failed = [each["name"] for each in verdict["checks"] if each["state"] == "failed"]
    assert failed == [f"logged {production.dataset}"]
    with pytest.raises(ConfigError, match="--against"):
        typed_json(*words)
