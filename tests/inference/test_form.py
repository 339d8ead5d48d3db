"""Answers whose text is restricted, by the embedded engine, against the distributions of a plain forward pass."""

import asyncio
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
import torch
from sample_models import (
    TOLERANCE,
    VOCABULARY,
    adapter,
    answers,
    logits,
    merged,
    random_prompt,
    request,
    tiny_forms,
    tiny_model,
    tiny_tokenizer,
)

from loomrl.config import Sampling
from loomrl.envs.tool import ToolCallEnvironment
from loomrl.envs.tool.call import read_call, split_calls
from loomrl.envs.tool.session import all_tools
from loomrl.errors import PolicyError
from loomrl.gym.base import BaseEnvironment, Step
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import Completion, FinishReason, Request, Unsupported
from loomrl.inference.policy import Voice, speakers
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.torch.rows import ShiftedOdds, draw
from loomrl.inference.weights.sealed import seal
from loomrl.types import Form, Message, Observation, Task

pytestmark = pytest.mark.usefixtures("one_thread")
MODEL = tiny_model()
CHAT = ChatTemplate(tiny_tokenizer())
SPECIAL = set(tiny_tokenizer().all_special_ids)
WORDS = [b"" if id in SPECIAL else CHAT.spelling[id] for id in range(VOCABULARY)]
CHOICES = ("What is it?", "two", "two or three", "12")
CHOICE = Form("choice", json.dumps(CHOICES))
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "legs": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["kind", "legs"],
    "additionalProperties": False,
}


@pytest.fixture
def open_engine() -> Iterator[Callable[[], TorchEngine]]:
    forms = tiny_forms()
    yield lambda: TorchEngine(MODEL, slots=16, context=192, forms=forms)
    forms.close()


def asking(form: Form, seed: int, **sampling: float) -> Request:
    sampling = {"max_tokens": 64, **sampling}
    return replace(request(random_prompt(seed, 3 + seed), seed=seed, stop=CHAT.stop, **sampling), form=form)


def text_of(completion: Completion) -> str:
    return CHAT.decode(completion.ids_T)


def left_by_choice(before: bytes) -> list[int]:
    """The ids after which one of the choices can still be completed."""
    whole = [each.encode() for each in CHOICES]
    ids = [id for id, word in enumerate(WORDS) if word and any(each.startswith(before + word) for each in whole)]
    return [*ids, *CHAT.stop] if before in whole else ids


@pytest.mark.parametrize("name", ["", "tuned"])
async def test_shifts_are_those_of_renormalising_what_the_form_leaves(
    open_engine: Callable[[], TorchEngine], name: str
) -> None:
    engine = open_engine()
    tuned = adapter(MODEL, 1)
    await engine.add_adapter("tuned", tuned)
    model = merged(MODEL, tuned) if name else MODEL
    asked = [replace(asking(CHOICE, seed, temperature=(0.0, 0.7, 1.3)[seed % 3]), adapter=name) for seed in range(12)]
    found = await answers(engine, asked)
    assert len({text_of(got) for got in found}) > 1
    for one, got in zip(asked, found, strict=True):
        assert text_of(got) in CHOICES
        assert got.finish is FinishReason.STOP
        logp_TV = torch.log_softmax(logits(model, one, got.ids_T) / (one.sampling.temperature or 1.0), -1).numpy()
        before = b""
        assert got.shifts_T is not None
        for logp_V, id, logprob, shift in zip(logp_TV, got.ids_T, got.logprobs_T, got.shifts_T, strict=True):
            left = left_by_choice(before)
            assert abs(logprob - logp_V[id]) <= TOLERANCE
            assert abs(shift + np.logaddexp.reduce(logp_V[left])) <= TOLERANCE
            if not one.sampling.temperature:
                assert logp_V[id] == logp_V[left].max()
            before += WORDS[id]


def test_every_answer_follows_its_schema_and_says_when_it_was_cut(open_engine: Callable[[], TorchEngine]) -> None:
    form = Form("schema", json.dumps(SCHEMA))
    asked = [asking(form, seed, temperature=1.5, max_tokens=(64, 9)[seed % 2]) for seed in range(16)]
    for one, got in zip(asked, asyncio.run(answers(open_engine(), asked)), strict=True):
        if got.finish is FinishReason.STOP:
            jsonschema.validate(json.loads(text_of(got)), SCHEMA)
        else:
            assert len(got.ids_T) == one.sampling.max_tokens
            with pytest.raises(json.JSONDecodeError):
                json.loads(text_of(got))


@pytest.mark.parametrize(
    ("form", "is_right"),
    [
        (Form("json"), lambda text: isinstance(json.loads(text), dict)),
        (Form("regex", "[ab]{2,5}(é|ü)"), lambda text: 3 <= len(text) <= 6 and text[-1] in "éü"),
        (Form("grammar", 'root ::= "x" [0-9] "y"\n'), lambda text: text[0] + text[2:] == "xy"),
        (Form("grammar", 'start: "x" /[0-9]/ "y"'), lambda text: text[0] + text[2:] == "xy"),
    ],
)  # fmt: skip
def test_answers_have_the_form_of_every_kind(
    open_engine: Callable[[], TorchEngine], form: Form, is_right: Callable[[str], bool]
) -> None:
    asked = [asking(form, seed) for seed in range(4)]
    whole = [one for one in asyncio.run(answers(open_engine(), asked)) if one.finish is FinishReason.STOP]
    assert all(is_right(text_of(one)) for one in whole)
    assert whole or form.kind == "json"


@pytest.mark.parametrize("top_p", [None, 0.8])
def test_rows_without_a_form_draw_the_same_bits_beside_one_that_has_it(top_p: float | None) -> None:
    rng = torch.Generator().manual_seed(0)
    logits_NV = torch.randn(6, VOCABULARY, generator=rng) * 3
    given = [torch.tensor([0, 0.7, 1, 1.3, 0, 1]).double(), None if top_p is None else torch.full((6,), top_p)]
    uniform_N = torch.rand(6, generator=rng, dtype=torch.float64)
    row_M = torch.tensor([0, 3])
    bent_MV = logits_NV[row_M] + 0.02 * torch.arange(VOCABULARY)
    allowed_V = torch.arange(VOCABULARY) < 10
    formed_F = torch.tensor([0, 5])
    allowed_NV = torch.ones(6, VOCABULARY, dtype=torch.bool)
    allowed_NV[formed_F] = allowed_V
    shifted = ShiftedOdds(row_M, bent_MV, allowed_NV)
    plain = draw(logits_NV, *given, uniform_N)
    beside = draw(logits_NV, *given, uniform_N, shifted)
    others = [1, 2, 4]
    for mine, theirs in zip(plain[:3], beside[:3], strict=True):
        assert torch.equal(mine[others], theirs[others])
    assert torch.equal(plain.logp_NV, beside.logp_NV)
    assert not plain.shift_N.any()
    assert (beside.token_N[formed_F] < 10).all()
    odds_NV = logits_NV.clone()
    odds_NV[row_M] = bent_MV
    odds_NV[formed_F] = odds_NV[formed_F].masked_fill(~allowed_V, -torch.inf)
    scale_N1 = torch.where(given[0] == 0, 1, given[0])[:, None]
    shift_NV = torch.log_softmax(odds_NV / scale_N1, -1) - torch.log_softmax(logits_NV / scale_N1, -1)
    torch.testing.assert_close(beside.shift_N, shift_NV.gather(1, beside.token_N[:, None])[:, 0].float())


def test_form_that_leaves_what_is_all_but_impossible_draws_it_by_its_own_odds() -> None:
    logits_NV = torch.tensor([[0.0, -2000.0, -2000.0], [0.0, -2000.0, -1999.0]])
    allowed_NV = torch.tensor([[False, True, True]] * 2)
    shifted = ShiftedOdds(torch.zeros(0, dtype=torch.long), torch.zeros(0, 3), allowed_NV)
    found = draw(logits_NV, torch.tensor([1.0, 0.0]).double(), None, torch.tensor([0.49, 0.0]).double(), shifted)
    assert found.token_N.tolist() == [1, 2]
    torch.testing.assert_close(found.shift_N, torch.tensor([2000 - math.log(2), 1999 - math.log(1 + math.exp(-1))]))


async def test_answer_stays_in_its_form_while_weights_change_and_streams_its_shifts(
    open_engine: Callable[[], TorchEngine],
) -> None:
    engine = TorchEngine(tiny_model(), slots=16, context=192, forms=tiny_forms())
    one = asking(Form("schema", json.dumps(SCHEMA)), 3, temperature=0.0)
    pieces = []
    async for piece in engine.stream(one):
        pieces.append(piece)
        if len(pieces) == 1:
            await engine.load(seal(tiny_model(seed=1).state_dict(), 1))
    await engine.close()
    ids_T = np.concatenate([piece.ids_T for piece in pieces])
    assert {*np.concatenate([piece.versions_T for piece in pieces]).tolist()} == {0, 1}
    jsonschema.validate(json.loads(CHAT.decode(ids_T)), SCHEMA)
    assert sum(len(piece.shifts_T) for piece in pieces if piece.shifts_T is not None) == len(ids_T)


def nested(depth: int) -> dict[str, object]:
    found: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}}
    return found


HOSTILE = {
    "depth": '{"items":' * 40_000 + "{}" + "}" * 40_000,
    "circle": json.dumps({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
    "product": json.dumps(
        {"allOf": [{"anyOf": [{"properties": {f"{i}{j}": {"const": j}}} for j in range(8)]} for i in range(6)]}
    ),
    "enum": json.dumps({"enum": [f"value number {n}" for n in range(40_000)]}),
    "items": json.dumps({"type": "array", "minItems": 10**9, "items": {"type": "string"}}),
    "missing": json.dumps({"type": "array", "uniqueItems": True}),
    "nonsense": "{",
}


async def test_hostile_and_unsupported_forms_are_refused_and_harm_nobody() -> None:
    forms = tiny_forms()
    for text in HOSTILE.values():
        for _ in range(2):  # the second time without a trial
            with pytest.raises(Unsupported, match="form=schema"):
                await forms.open(Form("schema", text), CHAT.stop)
    for form in (
        Form("regex", "("),
        Form("grammar", "start: nothing"),
        Form("grammar", "start: start"),
        Form("choice", "[]"),
    ):
        with pytest.raises(Unsupported, match=f"form={form.kind}"):
            await forms.open(form, CHAT.stop)
    assert (await forms.open(Form("schema", json.dumps(nested(50))), CHAT.stop)).find_allowed().any()
    forms.close()


async def test_form_needs_an_engine_with_words_and_a_token_that_ends_the_answer(
    open_engine: Callable[[], TorchEngine],
) -> None:
    with pytest.raises(Unsupported, match="form=choice: this engine"):
        await TorchEngine(MODEL, slots=1).generate(asking(CHOICE, 0))
    with pytest.raises(PolicyError, match="no token that ends an answer"):
        await open_engine().generate(replace(asking(CHOICE, 0), stop=frozenset()))


async def test_tool_environment_lets_a_policy_write_calls_and_answers_only(
    open_engine: Callable[[], TorchEngine],
) -> None:
    factory = speakers(Voice(open_engine(), CHAT, Sampling(max_tokens=150), 192))
    whole = 0
    for seed in range(8):
        environment = ToolCallEnvironment({"forms": True})
        await environment.reset(environment.task(environment.families[0], 1, seed))
        names = {tool.name for tool in all_tools(environment._problem)}
        action = await factory(environment, random.Random(seed)).act((Message("user", "Go."),))
        assert action.tokens is not None
        if int(action.tokens.ids_T[-1]) not in CHAT.stop:
            continue
        whole += 1
        calls, rest = split_calls(action.text)
        assert {read_call(call).name for call in calls} <= names
        assert bool(calls) != rest.startswith("<answer>")
    assert whole > 2
    assert ToolCallEnvironment().form() is None


class Chooser(BaseEnvironment):
    """Asks for one of its choices."""

    def form(self) -> Form:
        return CHOICE

    async def reset(self, task: Task | None = None) -> Observation:
        return (Message("user", "Choose."),)

    async def step(self, action: str) -> Step:
        return Step.end(self.pay(float(action in CHOICES)))


async def test_environment_can_ask_for_the_form_of_the_next_answer(open_engine: Callable[[], TorchEngine]) -> None:
    factory = speakers(Voice(open_engine(), CHAT, Sampling(max_tokens=64), 192))
    for seed in range(3):
        action = await factory(Chooser(), random.Random(seed)).act((Message("user", "Choose."),))
        assert action.text in CHOICES
        assert action.tokens is not None
        shifts_T = action.tokens.shifts_T
        assert shifts_T is not None
        assert (shifts_T[action.tokens.mask_T] > 0).any()
        assert not shifts_T[~action.tokens.mask_T].any()
