"""Odds that a caller changes: drawn from what they leave, recorded beside what the policy would have drawn."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loomrl.config import Sampling
from loomrl.inference.engine import Request
from loomrl.inference.remote.dialect import CompletionsApi, SglangTokens, VllmTokens
from loomrl.inference.torch.engine import TorchEngine
from loomrl.types import Odds
from tests.inference.sample_models import answers, logits, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")
LIKELY = 17
EACH = [
    Odds(top_k=3),
    Odds(min_p=0.2),
    Odds(presence_penalty=1.5),
    Odds(frequency_penalty=2.0),
    Odds(repetition_penalty=1.8),
    Odds(logit_bias=((LIKELY, 6.0), (3, -100.0))),
    Odds(((LIKELY, 2.0),), 1.3, 0.5, 0.5, 0.05, 20),
]


def asked(odds: Odds | None, *, seed: int = 0, temperature: float = 0.7) -> Request:
    sampling = Sampling(temperature=temperature, max_tokens=24)
    return Request(np.array([5, 9, 9, 12], np.int32), sampling, frozenset(), seed, odds=odds)


def expected(x_V: np.ndarray, odds: Odds, request: Request, said: list[int]) -> np.ndarray:
    """The probabilities that are left, by the plain words of `Odds`."""
    x_V = x_V.astype(np.float64).copy()
    for id, bias in odds.logit_bias:
        x_V[id] += bias
    for id in {*request.prompt_T.tolist(), *said}:
        x_V[id] = x_V[id] / odds.repetition_penalty if x_V[id] > 0 else x_V[id] * odds.repetition_penalty
    for id in set(said):
        x_V[id] -= odds.presence_penalty + odds.frequency_penalty * said.count(id)
    p_V = np.exp((x_V - x_V.max()) / request.sampling.temperature)
    p_V[p_V < odds.min_p * (1 - 1e-6)] = 0
    if odds.top_k:
        p_V[p_V < np.sort(p_V)[-odds.top_k]] = 0
    return p_V / p_V.sum()


@pytest.mark.parametrize("odds", EACH, ids=lambda odds: "+".join(odds.changes))
async def test_shifts_say_how_much_likelier_a_token_became(odds: Odds) -> None:
    engine = TorchEngine(model := tiny_model(), slots=4, context=64)
    request = asked(odds)
    (done,) = await answers(engine, [request])
    await engine.close()
    ids = done.ids_T.tolist()
    x_TV = logits(model, request, done.ids_T).numpy()
    assert done.shifts_T is not None
    moved = 0.0
    for at, (id, x_V) in enumerate(zip(ids, x_TV, strict=True)):
        p_V = expected(x_V, Odds(), request, ids[:at])
        q_V = expected(x_V, odds, request, ids[:at])
        assert done.logprobs_T[at] == pytest.approx(np.log(p_V[id]), abs=1e-3), "the policy's own, as without"
        assert done.shifts_T[at] == pytest.approx(np.log(q_V[id]) - np.log(p_V[id]), abs=2e-3)
        moved = max(moved, float(np.abs(p_V - q_V).max()))
    assert moved > 0.01


async def test_rows_that_ask_for_none_draw_what_they_drew_bit_for_bit() -> None:
    plain = [asked(None, seed=seed) for seed in range(4)]
    engine = TorchEngine(tiny_model(), slots=16, context=64)
    alone = await answers(engine, plain)
    beside = await answers(engine, [*plain, *(asked(odds, seed=9) for odds in EACH)])
    await engine.close()
    for one, other in zip(alone, beside, strict=False):
        assert one.ids_T.tobytes() == other.ids_T.tobytes()
        assert one.logprobs_T.tobytes() == other.logprobs_T.tobytes()
        assert other.shifts_T is None


async def test_a_banned_token_never_comes_and_a_wanted_one_always() -> None:
    engine = TorchEngine(tiny_model(), slots=4, context=64)
    (first,) = await answers(engine, [asked(None, temperature=0.0)])
    token = int(first.ids_T[0])
    ban, want, one = await answers(
        engine,
        [asked(Odds(((token, -100.0),))), asked(Odds(((token, 100.0),))), replace(asked(Odds(top_k=1)), seed=5)],
    )
    await engine.close()
    assert token not in ban.ids_T
    assert set(want.ids_T.tolist()) == {token}
    assert one.ids_T.tolist() == first.ids_T.tolist(), "the likeliest alone is what greedy sampling takes"


@pytest.mark.parametrize(
    ("dialect", "place"),
    [(CompletionsApi(), ()), (VllmTokens(), ("sampling_params",)), (SglangTokens(), ("sampling_params",))],
)
def test_servers_are_told_in_their_own_names(dialect: Any, place: tuple[str, ...]) -> None:
    def body(odds: Odds | None) -> dict[str, Any]:
        found: dict[str, Any] = dialect.body("m", asked(odds), max_tokens=5)
        for name in place:
            found = found[name]
        return found

    told = body(EACH[-1])
    names = ("top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias")
    assert [told[name] for name in names] == [20, 0.05, 0.5, 0.5, 1.3, {LIKELY: 2.0}]
    assert not set(names) & body(None).keys()
