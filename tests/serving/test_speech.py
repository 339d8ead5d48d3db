"""Conversations answered by an engine: its ids are what is told, and the text never takes anything back."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loomrl.config import Sampling, TorchServing
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import Completion, CompletionPiece, FinishReason, Pieces, Request, Sight, Unsupported
from loomrl.inference.policy import Voice
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.sealed import seal
from loomrl.serving.call import (
    ChatMessage,
    ChoiceClosed,
    Drawing,
    Event,
    Gathered,
    PromptOpened,
    TokensDrawn,
    ToolCall,
    ToolSpec,
)
from loomrl.serving.deployment.opening import open_speech
from loomrl.serving.deployment.source import OpenFolder, PolicySource
from loomrl.serving.policy import ActRequest, Continuation, Picture
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.speech import LanguageServedPolicy
from loomrl.serving.wording import CallReader, read_call, restrict_calls, to_messages, write_call
from loomrl.types import Form, Message
from tests.inference.sample_models import TEMPLATE, logprobs, tiny_forms, tiny_model, tiny_tokenizer
from tests.inference.sample_pictures import noise, plain_logprobs, seeing_model, seeing_tokenizer
from tests.serving.scripted_engine import ScriptedEngine
from tests.serving.waiting import refuses

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENIZER = tiny_tokenizer()
CHAT = ChatTemplate(TOKENIZER)
CONTEXT = 250
HELLO = (ChatMessage(role="user", text="What is 1 + 1?"),)
WEATHER = ToolSpec(name="weather", description="Of a place.", parameters={"type": "object"})
CLOCK = ToolSpec(name="clock")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Ulm"}}\n</tool_call>'


def gathered(events: Sequence[Event], count: int) -> list[Gathered]:
    """The events of a call by choice."""
    choices = [Gathered() for _ in range(count)]
    for event in events:
        choices[event.index].add(event)
    return choices


def scripted(
    *answers: str, context: int = 4000, chat: ChatTemplate = CHAT, seed: int = 0
) -> tuple[LanguageServedPolicy, ScriptedEngine]:
    engine = ScriptedEngine(chat, answers, seed=seed)
    return LanguageServedPolicy(Voice(engine, chat, Sampling(max_tokens=900), context), version="v"), engine


class Logging(TorchEngine):
    """Remembers every request, and every token that left it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(tiny_model(), context=CONTEXT, **options)
        self.log: list[tuple[Request, list[CompletionPiece]]] = []

    async def stream(self, request: Request) -> Pieces:
        pieces: list[CompletionPiece] = []
        self.log.append((request, pieces))
        async with aclosing(super().stream(request)) as told:
            async for piece in told:
                pieces.append(piece)
                yield piece


def sampling(max_tokens: int = 12) -> tuple[LanguageServedPolicy, Logging]:
    engine = Logging(slots=4, version=3)
    return LanguageServedPolicy(Voice(engine, CHAT, Sampling(max_tokens=max_tokens), CONTEXT), version="tiny"), engine


async def events(answer: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in answer]


async def one(speech: LanguageServedPolicy, **asked: Any) -> Gathered:
    """The single choice of a call."""
    told = await events(speech.answer(Continuation(**asked)))
    assert isinstance(told[0], PromptOpened)
    assert isinstance(told[-1], ChoiceClosed)
    (choice,) = gathered(told, 1)
    assert "".join(event.text for event in told if isinstance(event, TokensDrawn)) == told[-1].text
    return choice


def closed(choice: Gathered) -> ChoiceClosed:
    assert choice.closed is not None
    return choice.closed


def spelled(ids: Sequence[int] | np.ndarray) -> str:
    return str(TOKENIZER.decode(list(ids), clean_up_tokenization_spaces=False))


# -- ids ----------------------------------------------------------------------------------------------------------


async def test_what_is_told_is_what_the_engine_sampled() -> None:
    speech, engine = sampling()
    known, asked = np.zeros(0, np.int32), HELLO
    for turn in range(4):
        choice = await one(speech, known_T=known, messages=asked, drawing=Drawing(seed=turn))
        request, pieces = engine.log[-1]
        assert request.prompt_T.tolist() == [*known.tolist(), *choice.opened.tolist()]
        assert choice.ids.tolist() == np.concatenate([piece.ids_T for piece in pieces]).tolist()
        assert set(choice.versions.tolist()) == {3}
        assert np.abs(choice.logprobs - logprobs(tiny_model(), request, choice.ids)).max() < 1e-4
        assert closed(choice).text == CHAT.decode(choice.ids)
        known, asked = np.concatenate([request.prompt_T, choice.ids]), (ChatMessage(role="user", text="And?"),)


async def test_a_known_answer_that_was_cut_is_ended_and_one_that_ended_is_not_ended_twice() -> None:
    first = CHAT.opening((Message("user", "x"),)).ids
    for answer, begins in (([70, 71], "<|end|>"), ([70, CHAT.end], "")):
        speech, _ = scripted("yes")
        known = np.array([*first, *answer], np.int32)
        choice = await one(speech, known_T=known, messages=(ChatMessage(role="user", text="y"),))
        assert spelled(choice.opened) == begins + "<|user|>y<|end|><|assistant|>"


async def test_choices_have_one_prompt_and_seeds_of_their_own() -> None:
    speech, engine = sampling()
    told = await events(speech.answer(Continuation(messages=HELLO, drawing=Drawing(n=6, seed=5))))
    choices = gathered(told, 6)
    assert len({tuple(choice.opened) for choice in choices}) == 1
    assert len({tuple(choice.ids) for choice in choices}) == 6
    alone = await one(speech, messages=HELLO, drawing=Drawing(seed=5))
    assert alone.ids.tolist() == choices[0].ids.tolist()
    assert len({request.seed for request, _ in engine.log[:6]}) == 6


async def test_without_a_seed_answers_differ() -> None:
    speech, _ = sampling()
    assert len({tuple((await one(speech, messages=HELLO)).ids) for _ in range(4)}) > 1


async def test_weights_are_swapped_under_many_callers_and_every_token_says_its_version() -> None:
    models = [tiny_model(seed=seed) for seed in range(3)]
    speech, engine = sampling(max_tokens=12)
    callers = [
        asyncio.create_task(one(speech, messages=HELLO, drawing=Drawing(seed=seed, temperature=0.9)))
        for seed in range(16)
    ]
    swaps = 0
    while not all(caller.done() for caller in callers):
        swaps += 1
        await speech.load(seal(models[swaps % 3].state_dict(), 3 + swaps))
        for _ in range(12):
            await asyncio.sleep(0)
    assert swaps > 5
    answers = [await caller for caller in callers]
    by_prompt = {tuple(id for piece in pieces for id in piece.ids_T.tolist()): asked for asked, pieces in engine.log}
    for answer in answers:
        request = by_prompt[tuple(answer.ids.tolist())]
        expected = np.stack([logprobs(each, request, answer.ids) for each in models])
        by_version = expected[(answer.versions - 3) % 3, np.arange(len(answer.ids))]
        assert np.abs(by_version - answer.logprobs).max() < 1e-4


# -- text ---------------------------------------------------------------------------------------------------------

PARTS = st.lists(
    st.sampled_from(["é", "😀", "\nObs", "\nObservation:", "STOP", "ST", "a", " ", CALL, "<tool_call>", "</", "{"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    max_size=8,
).map("".join)


@settings(max_examples=40)
@given(
    PARTS,
    st.lists(st.sampled_from(["STOP", "\nObservation:", "TOP", "😀", "a"]), max_size=3),
    st.booleans(),
    st.integers(0, 9),
)
def test_joined_text_is_the_whole_text_whatever_the_pieces(text: str, stop: list[str], tools: bool, seed: int) -> None:
    async def check() -> tuple[str, str, list[str], list[int]]:
        speech, _ = scripted(text, seed=seed)
        asked = {"tools": (WEATHER,) if tools else (), "drawing": Drawing(stop=tuple(stop), max_tokens=900)}
        choice = await one(speech, messages=HELLO, **asked)
        done = closed(choice)
        return done.text, done.stopped_by, [call.arguments for call in done.calls], choice.ids.tolist()

    got = asyncio.run(check())
    ends = ((at + len(one), at) for one in stop if (at := text.find(one)) >= 0)
    _, first = min(ends, default=(0, len(text)))
    if not tools:
        assert got[0] == text[:first]
    assert bool(got[1]) == (first < len(text))
    whole = CHAT.encode(text).tolist()
    assert got[3] == whole[: len(got[3])]
    if first == len(text):
        assert got[3] == whole
        if tools and text.count("<tool_call>") == text.count(CALL):
            assert len(got[2]) == text.count(CALL)


@given(st.lists(st.integers(0, 299), max_size=30))
def test_random_ids_become_the_text_that_the_tokenizer_gives(ids: list[int]) -> None:
    from loomrl.serving.speech import Writing

    writing = Writing(CHAT.spelling)
    deltas = [writing.add(id) for id in ids] + [writing.end()]
    whole = TOKENIZER.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert "".join(deltas) == writing.text == whole


async def test_a_stop_string_ends_the_sampling_with_the_token_that_completed_it() -> None:
    text = "one two STOP three four five"
    for seed in range(8):
        speech, engine = scripted(text, seed=seed)
        choice = await one(speech, messages=HELLO, drawing=Drawing(stop=("STOP",)))
        done = closed(choice)
        assert (done.text, done.stopped_by, done.finish) == ("one two ", "STOP", "stop")
        assert "STOP" in spelled(choice.ids)
        assert "STOP" not in spelled(choice.ids[:-1])
        assert engine.closed == 1


async def test_an_answer_that_was_cut_says_so_and_shows_half_a_character_as_one_that_is_none() -> None:
    speech, _ = scripted("ab😀")
    ids = CHAT.encode("ab😀")
    choice = await one(speech, messages=HELLO, drawing=Drawing(max_tokens=len(ids) - 2))
    assert closed(choice).finish == "length"
    assert closed(choice).text == "ab\ufffd"


# -- tools --------------------------------------------------------------------------------------------------------


async def test_calls_are_read_and_their_text_is_not_shown() -> None:
    speech, engine = scripted(f"I look.\n{CALL}\n{CALL}")
    done = closed(await one(speech, messages=HELLO, tools=(WEATHER, CLOCK)))
    assert (done.text, done.finish) == ("I look.", "tool_calls")
    assert [(call.name, json.loads(call.arguments)) for call in done.calls] == [("weather", {"place": "Ulm"})] * 2
    assert len({call.id for call in done.calls}) == 2
    prompt = spelled(engine.asked[0].prompt_T)
    assert prompt.startswith("<|system|># Tools")
    assert '{"name": "clock", "description": "", "parameters": {}}' in prompt


async def test_without_tools_or_with_the_choice_of_none_a_call_is_text() -> None:
    for asked in ({}, {"tools": (WEATHER,), "tool_choice": "none"}):
        speech, _ = scripted(CALL)
        done = closed(await one(speech, messages=HELLO, **asked))
        assert (done.text, done.calls, done.finish) == (CALL, (), "stop")


@pytest.mark.parametrize(
    ("choice", "tools", "forced"),
    [
        ("required", (WEATHER, CLOCK), '<tool_call>\n{"name": "'),
        ("required", (CLOCK,), '<tool_call>\n{"name": "clock", "arguments":'),
        ("tool:weather", (WEATHER, CLOCK), '<tool_call>\n{"name": "weather", "arguments":'),
    ],
)
async def test_a_required_call_is_begun_in_the_prompt(choice: str, tools: tuple[ToolSpec, ...], forced: str) -> None:
    rest = '{"x": 1}}\n</tool_call>'
    if forced.endswith('"'):
        rest = f'weather", "arguments": {rest}'
    speech, _ = scripted(rest)
    got = await one(speech, messages=HELLO, tools=tools, tool_choice=choice)
    assert spelled(got.opened).endswith("<|assistant|>" + forced)
    assert CHAT.decode(got.ids) == rest
    (call,) = closed(got).calls
    assert (call.name, call.arguments) == (json.loads((forced + rest).split("\n")[1])["name"], '{"x": 1}')


async def test_a_required_call_that_turns_out_malformed_is_text_with_its_beginning() -> None:
    speech, _ = scripted("no idea")
    done = closed(await one(speech, messages=HELLO, tools=(CLOCK,), tool_choice="required"))
    assert (done.text, done.finish) == ('<tool_call>\n{"name": "clock", "arguments":no idea', "stop")


async def test_answer_that_was_cut_in_a_call_says_so_without_showing_it() -> None:
    for choice in ("auto", "required"):
        speech, _ = scripted(f"Well. {CALL}" if choice == "auto" else " " + CALL)
        asked = {"messages": HELLO, "tools": (CLOCK,), "tool_choice": choice, "drawing": Drawing(max_tokens=30)}
        done = closed(await one(speech, **asked))
        assert (done.text, done.calls, done.finish) == ("Well." if choice == "auto" else "", (), "length")


SHAPE = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}
KNOWN_T = np.array([CHAT.end], np.int32)
"""An answer before; the tools were described then."""
LAMP = ToolSpec(name="lamp", parameters=SHAPE)
DOOR = ToolSpec(name="door", parameters=SHAPE, strict=True)


@pytest.fixture
def formed() -> Iterator[LanguageServedPolicy]:
    """A random policy, whose answers can have forms."""
    forms = tiny_forms()
    engine = TorchEngine(tiny_model(), slots=8, context=CONTEXT, forms=forms)
    yield LanguageServedPolicy(Voice(engine, CHAT, Sampling(max_tokens=60), CONTEXT), version="tiny")
    forms.close()


@pytest.mark.parametrize("choice", ["required", "tool:lamp"])
async def test_forced_call_names_a_tool_and_has_its_arguments(formed: LanguageServedPolicy, choice: str) -> None:
    asked = {"messages": HELLO, "known_T": KNOWN_T, "tools": (LAMP, DOOR), "tool_choice": choice}
    for seed in range(4):
        got = await one(formed, **asked, parallel_tool_calls=False, drawing=Drawing(seed=seed))
        (call,) = closed(got).calls
        assert call.name in (["lamp"] if choice == "tool:lamp" else ["lamp", "door"])
        assert json.loads(call.arguments)["on"] in (True, False)
        assert (closed(got).finish, closed(got).text) == ("tool_calls", "")
        assert got.shifts is not None
        assert len(got.shifts) == len(got.ids)


async def test_answer_beside_tools_is_the_callers_form_or_calls(formed: LanguageServedPolicy) -> None:
    drawing = Drawing(seed=1, form=Form("choice", '["is it?", "two"]'))
    got = closed(await one(formed, messages=HELLO, known_T=KNOWN_T, tools=(LAMP,), drawing=drawing))
    assert got.text in ("is it?", "two") or got.calls
    refused = Continuation(messages=HELLO, known_T=KNOWN_T, tools=(LAMP,), drawing=Drawing(form=Form("regex", "a")))
    with refuses(RefusalCause.INVALID, "beside tools"):
        await events(formed.answer(refused))
    broken = Continuation(messages=HELLO, drawing=Drawing(form=Form("schema", '{"not": {}}')))
    with refuses(RefusalCause.INVALID, "Unimplemented keys"):
        await events(formed.answer(broken))


async def test_stop_string_ends_an_answer_before_its_form_does(formed: LanguageServedPolicy) -> None:
    for seed in range(4):
        drawing = Drawing(seed=seed, stop=("ab",), form=Form("regex", "[ab]{30}"))
        done = closed(await one(formed, messages=HELLO, drawing=drawing))
        assert (done.stopped_by == "ab") == (len(done.text) < 30)
        assert "ab" not in done.text
        assert done.finish == "stop"


def test_answer_is_free_unless_a_tool_is_strict_or_a_call_is_due() -> None:
    assert restrict_calls(Continuation(messages=HELLO, tools=(LAMP,))) is None
    assert restrict_calls(Continuation(messages=HELLO, tools=(DOOR,), tool_choice="none")) is None
    strict = restrict_calls(Continuation(messages=HELLO, tools=(LAMP, DOOR)))
    assert strict is not None
    assert strict.text.startswith("start: (lead rest)* TEXT")


async def test_one_call_is_enough_if_they_must_not_be_parallel() -> None:
    speech, engine = scripted(f"{CALL}\n{CALL}\nand more")
    choice = await one(speech, messages=HELLO, tools=(WEATHER,), parallel_tool_calls=False)
    assert len(closed(choice).calls) == 1
    assert (closed(choice).text, closed(choice).finish) == ("", "tool_calls")
    assert spelled(choice.ids).count("</tool_call>") == 1
    assert engine.closed == 1


ASSISTANT = ChatMessage(
    role="assistant", text="Let me see.", calls=(ToolCall(id="a", name="clock", arguments='{ "z": "é"}'),)
)


def test_messages_become_the_same_text_each_time() -> None:
    again = replace(ASSISTANT, calls=(ToolCall(id="other", name="clock", arguments='{"z":"\\u00e9"}'),))
    results = [ChatMessage(role="tool", text=text, answers="a") for text in ("noon", "night")]
    messages = to_messages([*HELLO, ASSISTANT, *results], tool_role=False)
    assert messages == to_messages([*HELLO, again, *results], tool_role=False)
    assert messages[1].content == 'Let me see.\n<tool_call>\n{"name": "clock", "arguments": {"z": "é"}}\n</tool_call>'
    assert messages[2].content == "<tool_response>\nnoon\n</tool_response>\n<tool_response>\nnight\n</tool_response>"
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert [message.role for message in to_messages([*HELLO, ASSISTANT, *results], tool_role=True)][2:] == [
        "tool",
        "tool",
    ]


def test_tools_join_the_system_message() -> None:
    system, _ = to_messages([ChatMessage(role="system", text="Be brief."), *HELLO], [CLOCK], tool_role=True)
    assert system.content.startswith("Be brief.\n\n# Tools")
    assert len(to_messages(HELLO, [CLOCK], tool_role=True)) == 2


async def test_results_of_tools_are_the_users_where_the_template_knows_no_other_role() -> None:
    refusal = "{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    chat = ChatTemplate(tiny_tokenizer(TEMPLATE.replace("{{ m.content }}", refusal + "{{ m.content }}")))
    speech, engine = scripted("fine", chat=chat)
    await one(speech, messages=(*HELLO, ASSISTANT, ChatMessage(role="tool", text="noon", answers="a")))
    assert "<|user|><tool_response>\nnoon\n</tool_response><|end|>" in spelled(engine.asked[0].prompt_T)


# -- settings -----------------------------------------------------------------------------------------------------


async def test_a_callers_settings_count_and_others_are_the_policys() -> None:
    speech, engine = scripted("a", "b", context=100)
    await one(speech, messages=HELLO, drawing=Drawing(temperature=0.5, top_p=0, max_tokens=7, seed=-1))
    await one(speech, messages=HELLO)
    first, second = engine.asked
    assert (first.sampling.temperature, first.sampling.max_tokens, first.seed) == (0.5, 7, 2**63 - 1)
    assert 0 < first.sampling.top_p < 1e-6
    assert (second.sampling.temperature, second.sampling.max_tokens) == (1.0, 100 - len(second.prompt_T))


async def test_the_likeliest_tokens_come_with_their_bytes() -> None:
    speech, _ = sampling(max_tokens=20)
    choice = await one(speech, messages=HELLO, drawing=Drawing(seed=2, logprobs=True, top_logprobs=3))
    ended = choice.ids[-1] == CHAT.end
    assert [token.drawn.id for token in choice.tokens] == choice.ids.tolist()[: -1 if ended else None]
    assert b"".join(token.drawn.token for token in choice.tokens).decode(errors="replace") == closed(choice).text
    for token, logprob in zip(choice.tokens, choice.logprobs, strict=False):
        assert token.drawn.logprob == pytest.approx(float(logprob))
        assert len(token.top) == 3
        assert token.top[0].logprob == max(each.logprob for each in token.top) >= token.drawn.logprob - 1e-6


async def test_a_prompt_is_continued_as_text_or_as_ids() -> None:
    speech, engine = scripted("a", "b")
    await one(speech, prompt="What is<|end|>")
    ids = engine.asked[0].prompt_T.tolist()
    assert ids == TOKENIZER.encode("What is<|end|>")
    await one(speech, prompt=tuple(ids))
    assert engine.asked[1].prompt_T.tolist() == ids


# -- pictures -----------------------------------------------------------------------------------------------------

MODEL, VISION = seeing_model()


async def test_pictures_are_seen_where_they_are_and_known_ones_are_not_made_again() -> None:
    chat = ChatTemplate(seeing_tokenizer(), VISION)
    engine = TorchEngine(MODEL, slots=2, context=180, vision=VISION)
    speech = LanguageServedPolicy(Voice(engine, chat, Sampling(max_tokens=4), 180))
    assert speech.about.sees
    known, pictures = np.zeros(0, np.int32), []
    for turn, told in enumerate(((noise(1), noise(2)), (), (noise(3),))):
        asked = Continuation(
            known_T=known,
            pictures=tuple(pictures),
            messages=(ChatMessage(role="user", text="What colour?", images=told),),
            drawing=Drawing(seed=turn),
        )
        (choice,) = gathered(await events(speech.answer(asked)), 1)
        known = np.concatenate([known, choice.opened, choice.ids])
        pictures += [Picture(png=png, start=start) for png, start in zip(told, choice.sights, strict=True)]
        for picture in pictures:
            ids_T = VISION.seen(picture.png).ids_T
            assert known[picture.start : picture.start + len(ids_T)].tolist() == ids_T.tolist()
        sights = tuple(Sight(picture.png, picture.start) for picture in pictures)
        request = Request(known[: -len(choice.ids)], Sampling(), frozenset(), turn, sights)
        completion = Completion(choice.ids, choice.logprobs, choice.versions, FinishReason.LENGTH)
        plain_T = plain_logprobs(MODEL, VISION, request, completion)
        assert np.abs(plain_T - choice.logprobs).max() < 1e-4


async def test_a_picture_that_is_broken_inside_is_refused() -> None:
    chat = ChatTemplate(seeing_tokenizer(), VISION)
    speech = LanguageServedPolicy(Voice(ScriptedEngine(chat, ["a"]), chat, Sampling(), 180))
    broken = noise(1)[:60] + bytes(200)
    with pytest.raises(Refusal, match="cannot be read") as refused:
        await anext(speech.answer(Continuation(messages=(ChatMessage(role="user", images=(broken,)),))))
    assert (refused.value.cause, refused.value.where) == (RefusalCause.INVALID, "messages")


async def test_pictures_are_refused_by_a_policy_of_text() -> None:
    speech, _ = sampling()
    with pytest.raises(Refusal, match="reads no pictures"):
        await anext(speech.answer(Continuation(messages=(ChatMessage(role="user", images=(noise(1),)),))))


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "cause", "message"),
    [
        (
            {"messages": (ChatMessage(role="user", text="What is " * 300),)},
            RefusalCause.TOO_LONG,
            "tokens, and the policy's context is 250",
        ),
        ({"messages": (ChatMessage(role="user", text="x" * 10**7),)}, RefusalCause.TOO_LONG, "at least"),
        ({"prompt": tuple([5] * 250)}, RefusalCause.TOO_LONG, "has 250 tokens"),
        ({"prompt": ""}, RefusalCause.INVALID, "no tokens"),
        ({"prompt": (3, 300)}, RefusalCause.INVALID, "token id 300: ids are 0 to 281"),
        ({"messages": HELLO, "drawing": Drawing(temperature=-1.0)}, RefusalCause.INVALID, "temperature=-1.0"),
        ({"messages": HELLO, "drawing": Drawing(max_tokens=-1)}, RefusalCause.INVALID, "max_tokens=-1"),
        ({"messages": HELLO, "drawing": Drawing(n=0)}, RefusalCause.INVALID, "n=0"),
        ({"messages": HELLO, "drawing": Drawing(stop=("",))}, RefusalCause.INVALID, "stop string is empty"),
        (
            {"messages": HELLO, "drawing": Drawing(logprobs=True, top_logprobs=21)},
            RefusalCause.INVALID,
            "top_logprobs=21",
        ),
        ({"messages": HELLO, "tool_choice": "required"}, RefusalCause.INVALID, "the tools are none"),
        ({"messages": HELLO, "tools": (CLOCK,), "tool_choice": "tool:x"}, RefusalCause.INVALID, "the tools are clock"),
        ({"messages": (ChatMessage(role="user", images=(b"no png",)),)}, RefusalCause.INVALID, "begins no PNG"),
    ],
)
async def test_what_cannot_be_answered_is_refused_before_the_first_event(
    asked: dict[str, Any], cause: RefusalCause, message: str
) -> None:
    speech, engine = sampling()
    with pytest.raises(Refusal, match=message) as refused:
        await anext(speech.answer(Continuation(**asked)))
    assert refused.value.cause is cause
    assert not engine.log


async def test_what_an_engine_cannot_do_is_the_callers_error() -> None:
    class Plain(ScriptedEngine):
        async def stream(self, request: Request) -> Pieces:
            raise Unsupported("no likeliest tokens")
            yield

    speech = LanguageServedPolicy(Voice(Plain(CHAT, ["a"]), CHAT, Sampling(), 100))
    with refuses(RefusalCause.INVALID, match="no likeliest tokens"):
        await anext(speech.answer(Continuation(messages=HELLO)))


async def test_a_long_conversation_is_tokenised_beside_the_others() -> None:
    speech, engine = scripted("fine", context=10**6)
    long = asyncio.create_task(one(speech, messages=(ChatMessage(role="user", text="What is the answer? " * 40_000),)))
    turns = 0
    while not engine.asked:
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 10
    assert closed(await long).text == "fine"
    assert len(engine.asked[0].prompt_T) > 40_000


async def test_messages_that_the_template_refuses_are_named() -> None:
    strict = "{% if messages[0].role != 'user' %}{{ raise_exception('the user begins') }}{% endif %}" + TEMPLATE
    speech, _ = scripted("a", chat=ChatTemplate(tiny_tokenizer(strict)))
    with pytest.raises(Refusal, match="refuses system, user: the user begins") as refused:
        await anext(speech.answer(Continuation(messages=(ChatMessage(role="system", text="x"), *HELLO))))
    assert (refused.value.cause, refused.value.where) == (RefusalCause.INVALID, "messages")


async def test_a_policy_of_words_does_not_act() -> None:
    with pytest.raises(Refusal, match="answers in words"):
        await scripted()[0].act(ActRequest(observations=np.zeros(1)))


@pytest.mark.parametrize("choices", [1, 3])
async def test_an_engine_that_fails_is_unavailable(choices: int) -> None:
    speech, _ = sampling(max_tokens=100)

    async def until_closed() -> None:
        async for event in speech.answer(Continuation(messages=HELLO, drawing=Drawing(n=choices, seed=1))):
            if isinstance(event, TokensDrawn):
                await speech.close()

    with refuses(RefusalCause.UNAVAILABLE, match="engine was closed"):
        await until_closed()


# -- ending early -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", [1, 5])
async def test_closing_or_cancelling_ends_the_sampling(choices: int) -> None:
    speech, engine = sampling(max_tokens=200)
    asked = Continuation(messages=HELLO, drawing=Drawing(n=choices, seed=3))
    async with aclosing(speech.answer(asked)) as told:
        while not isinstance(await anext(told), TokensDrawn):
            pass

    async def drain() -> None:
        await events(speech.answer(asked))

    task = asyncio.create_task(drain())
    while len(engine.log) < 2 * choices:  # noqa: ASYNC110 - requests come in turns of this loop
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    before = engine.statistics.sampled_tokens
    for _ in range(300):
        await asyncio.sleep(0)
    assert engine.statistics.sampled_tokens - before <= 4


# -- opening ------------------------------------------------------------------------------------------------------


async def test_a_folder_is_opened(tmp_path: Any) -> None:
    tiny_model().save_pretrained(tmp_path / "tiny")
    TOKENIZER.save_pretrained(tmp_path / "tiny")
    source = PolicySource(key="tiny", kind="language", version="tiny", folder=str(tmp_path / "tiny"), context=9999)
    speech = await open_speech(source, OpenFolder(tmp_path / "tiny", "tiny", 4), TorchServing(slots=2))
    about = speech.about
    assert (about.kind, about.version, about.number, about.context, about.sees) == ("language", "tiny", 4, 256, False)
    choice = await one(speech, messages=HELLO, drawing=Drawing(max_tokens=5, seed=1))
    assert set(choice.versions.tolist()) == {4}
    await speech.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(), JSON | st.just("</tool_call>"), max_size=3)
CALLS = st.builds(
    lambda name, arguments: ToolCall(id="", name=name, arguments=json.dumps(arguments)),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
    ARGUMENTS,
)
SCRAPS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<tool", "_call>", "{", '"', "}", "\\", " ", "\n", '{"name": "f"}', "é", "word"]
)
TEXTS = st.lists(SCRAPS | CALLS.map(write_call) | st.text(max_size=4), max_size=9).map("".join)


def read(text: str, cuts: list[int] | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The text shown and the calls, for a text that comes in pieces."""
    reader, shown, start = CallReader(), "", 0
    for cut in [*sorted(cuts or []), len(text)]:
        shown += reader.add(text[start : max(start, cut)])
        start = max(start, cut)
    shown += reader.end()
    return shown, [(call.name, call.arguments) for call in reader.calls]


@given(TEXTS, st.lists(st.integers(0, 200), max_size=12))
@example('<tool_call>"</tool_call><tool_call>{"name": "f"}</tool_call>', [3, 20])
def test_any_cut_of_the_text_gives_the_same_result(text: str, cuts: list[int]) -> None:
    assert read(text, [min(cut, len(text)) for cut in cuts]) == read(text) == read(text, list(range(len(text))))


@settings(max_examples=40)
@given(st.text(alphabet="ab <\n", max_size=10), st.lists(CALLS, min_size=1, max_size=3), st.text("xy\n ", max_size=5))
def test_calls_that_were_written_are_read_and_their_text_is_never_shown(
    before: str, calls: list[ToolCall], after: str
) -> None:
    shown, found = read(before + "\n".join(map(write_call, calls)) + after)
    assert [(name, json.loads(arguments)) for name, arguments in found] == [
        (call.name, json.loads(call.arguments)) for call in calls
    ]
    assert shown.strip() == (before.rstrip() + after.rstrip()).strip() or shown == before.rstrip() + after
    assert "name" not in shown


@given(TEXTS)
def test_shown_text_only_grows_and_no_character_is_lost_without_calls(text: str) -> None:
    shown, calls = read(text)
    if not calls:
        assert shown == text


@pytest.mark.parametrize(
    "malformed",
    [
        "{'name': 'f'}",
        '{"name": "f", "arguments": [1]}',
        '{"name": "", "arguments": {}}',
        '{"name": 3}',
        '{"name": "f", "arguments": {}, "extra": 1}',
        '{"name": "f", "arguments": {"x": NaN}}',
        '{"name": "\\ud800", "arguments": {}}',
        '["f"]',
        "",
        "[" * 100_000,
        '{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}",
    ],
)
def test_a_malformed_call_stays_in_the_text(malformed: str) -> None:
    text = f"Look:\n<tool_call>{malformed}</tool_call> so."
    assert read(text) == (text, [])


def test_a_whole_call_counts_though_the_answer_ended_before_its_tag_did() -> None:
    for ending in ("", "\n", "</tool_", "\n</tool_call"):
        shown, calls = read('Wait.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}' + ending)
        assert (shown, calls) == ("Wait.", [("f", '{"x": 1}')])
    assert read('<tool_call>{"name": "f", "argu')[1] == []


def test_a_number_beyond_all_floats_is_the_largest_one() -> None:
    reader = CallReader()
    assert reader.add('<tool_call>{"name": "f", "arguments": {"x": 1e999, "y": -2e8334}}</tool_call>') == ""
    (call,) = reader.calls
    assert json.loads(call.arguments) == {"x": sys.float_info.max, "y": -sys.float_info.max}


def test_a_good_call_after_a_malformed_one_is_read() -> None:
    good = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    for bad in ("<tool_call>oops</tool_call>", "<tool_call>", '<tool_call>{"name": "f</tool_call>'):
        assert read(bad + good) == (bad, [("f", "{}")])


def test_a_closing_tag_inside_an_argument_does_not_end_the_call() -> None:
    call = ToolCall(id="", name="write", arguments=json.dumps({"text": 'a </tool_call> "b" <tool_call>'}))
    assert read(write_call(call)) == ("", [(call.name, call.arguments)])


def test_line_breaks_inside_of_strings_are_forgiven_and_ids_differ() -> None:
    text = '{"name": "f", "arguments": {"x": "a\nb"}}'
    assert read_call(text).arguments == '{"x": "a\\nb"}'
    assert read_call(text).id != read_call(text).id
    assert read_call(text).id.startswith("call_")


def test_text_is_shown_before_the_call_that_follows_it_is_whole() -> None:
    reader = CallReader()
    assert reader.add("I look it up. <tool_") == "I look it up."
    assert reader.add('call>{"name"') == ""
    assert reader.add(': "f"}</tool_call>\nDone') == ("\nDone")
