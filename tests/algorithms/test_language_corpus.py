import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from loomrl.algorithms.language.build import SPECIAL, build_model, build_tokenizer
from loomrl.algorithms.language.corpus import MOST_SLOW, Demonstration, Draw, conversations, demonstrations, play
from loomrl.config import Architecture, WarmStart
from loomrl.envs.math import MathEnvironment
from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.answer import ANSWER_FORMAT, parse_submission
from loomrl.gym.base import BaseEnvironment, Step
from loomrl.types import Message, Observation, Reward, Task

FORMATS = ("{work}\n<answer>{answer}</answer>", "{work}\n\\boxed{{answer}}", "{answer}")
TOKENIZER = build_tokenizer([f"What is 1 + 2?\n\n{ANSWER_FORMAT}"], vocabulary=300)


class Count(BaseEnvironment):
    """Asks for the number after the last one, `level` times; then for a word."""

    name = "Count"
    version = "1"
    families = ("up",)
    at = 0

    async def reset(self, task: Task | None = None) -> Observation:
        self.at = 0
        self.last = task.level if task else 1
        return Message("system", "Count."), Message("user", "0")

    async def step(self, action: str) -> Step:
        self.at += 1
        assert action == str(self.at)
        return Step((Message("user", str(self.at)),), Reward(), False, False, {})

    def oracle(self) -> str:
        return "Done. <answer>yes</answer>" if self.at == self.last else str(self.at + 1)

    def random_action(self, rng: random.Random) -> str:
        return "anything"


def draws(family: str = "arithmetic.sum") -> Iterator[Draw]:
    environment = MathEnvironment()
    rng = random.Random(0)
    while True:
        yield environment, environment.task(family, 1, rng.randrange(1000))


def made(settings: WarmStart, count: int = 600, *, seed: int = 0) -> list[Demonstration]:
    return list(islice(demonstrations(draws(), settings, TOKENIZER, seed=seed), count))


def shape(text: str) -> str:
    return "tags" if "<answer>" in text else "boxed" if "boxed" in text else "bare" if text.isdecimal() else "other"


def test_formats_come_in_equal_shares() -> None:
    shapes = Counter(shape(d.messages[-1].content) for d in made(WarmStart(formats=FORMATS)))
    assert set(shapes) == {"tags", "boxed", "bare"}
    assert all(150 < count < 250 for count in shapes.values())


def test_families_may_have_formats_of_their_own() -> None:
    formats = {"Nobody/*": FORMATS, "*": ("{work} It is {answer}!",)}
    assert all("It is" in d.messages[-1].content for d in made(WarmStart(formats=formats), 30))
    with pytest.raises(ConfigError, match=r"formats: none for .*, only for Nobody/\*\. Add it, or '\*'"):
        made(WarmStart(formats={"Nobody/*": FORMATS}), 1)


def test_without_flaws_every_demonstration_is_right_in_work_and_answer() -> None:
    for demonstration in made(WarmStart(), 50):
        work, _, answer = demonstration.messages[-1].content.partition("\n")
        left, _, right = work.partition(" = ")
        assert sum(map(int, left.split(" + "))) == int(right)
        assert answer == f"<answer>{right}</answer>"


def test_the_asked_share_is_right_after_a_wrong_answer_that_the_environment_told() -> None:
    patient = MathEnvironment({"max_steps": 3, "retry": 0.5})
    rng = random.Random(0)
    source = ((patient, patient.task("arithmetic.sum", 1, rng.randrange(1000))) for _ in range(400))
    told = list(demonstrations(source, WarmStart(again=0.4), TOKENIZER, seed=0))
    twice = [demonstration for demonstration in told if len(demonstration.messages) == 4]
    assert 120 < len(twice) < 200
    for demonstration in twice:
        _, wrong, said, right = demonstration.messages
        assert said.content == "That is not right. Answer again."
        first, second = (parse_submission(message.content) for message in (wrong, right))
        assert first is not None
        assert second is not None
        assert first.answer != second.answer
        left, _, _ = second.reasoning.strip().partition(" = ")
        assert sum(map(int, left.split(" + "))) == int(second.answer)


def test_an_environment_that_ends_with_the_first_answer_is_refused_with_again() -> None:
    with pytest.raises(ConfigError, match=r"again: Math ends with the first answer"):
        made(WarmStart(again=1.0), 1)


def test_the_asked_share_is_wrong_and_its_work_agrees_with_it() -> None:
    wrong = 0
    for demonstration in made(WarmStart(wrong=0.3)):
        text = demonstration.messages[-1].content
        submission = parse_submission(text)
        assert submission is not None
        left, _, right = submission.reasoning.strip().partition(" = ")
        assert right == submission.answer
        truth = str(sum(map(int, left.split(" + "))))
        wrong += truth != right
        assert sum(a != b for a, b in zip(truth, right, strict=True)) == (truth != right)
    assert 0.22 < wrong / 600 < 0.38


def test_a_wrong_answer_without_digits_is_one_of_another_task() -> None:
    class Colour(Count):
        def oracle(self) -> str:
            return f"<answer>{'red' if self.last == 1 else 'blue'}</answer>"

    tasks = ((Colour(), Task("Colour", "1", "up", 1 + index % 2, index)) for index in range(10))
    texts = [d.messages[-1].content for d in demonstrations(tasks, WarmStart(wrong=1.0), TOKENIZER, seed=0)]
    assert texts[1:] == ["<answer>red</answer>", "<answer>blue</answer>"] * 4 + ["<answer>red</answer>"]


def test_an_episode_of_several_turns_is_one_sequence() -> None:
    settings = WarmStart(formats=("{work} It is {answer}!",))
    (demonstration,) = demonstrations([(Count(), Task("Count", "1", "up", 2, 0))], settings, TOKENIZER, seed=0)
    assert TOKENIZER.decode(demonstration.ids) == (
        "<|system|>Count.<|end|><|user|>0<|end|><|assistant|>1<|end|><|user|>1<|end|><|assistant|>2<|end|>"
        "<|user|>2<|end|><|assistant|>Done. It is yes!<|end|>"
    )
    said = [i for i, own in zip(demonstration.ids, demonstration.mask, strict=True) if own]
    assert TOKENIZER.decode(said) == "1<|end|>2<|end|>Done. It is yes!<|end|>"


def test_equal_seeds_give_equal_demonstrations() -> None:
    settings = WarmStart(formats=FORMATS, wrong=0.3)
    assert made(settings, 300) == made(settings, 300)
    assert made(settings, 300) != made(settings, 300, seed=1)


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    tokenizer = build_tokenizer(["0"], vocabulary=300)
    tokenizer.chat_template = "{{ messages | length }}"
    with pytest.raises(ConfigError, match="rewrites earlier turns"):
        list(demonstrations([(Count(), Task("Count", "1", "up", 1, 0))], WarmStart(), tokenizer, seed=0))


def test_actions_that_are_no_answers_slip_at_the_same_rate_and_end_the_demonstration() -> None:
    environment = Count()
    tasks = ((environment, Task("Count", "1", "up", 4, seed)) for seed in range(800))
    said = [[m.content for m in d.messages] for d in demonstrations(tasks, WarmStart(wrong=0.25), TOKENIZER, seed=0)]
    slipped = [texts for texts in said if "anything" in texts]
    assert all(texts[-1] == "anything" and texts.count("anything") == 1 for texts in slipped)
    assert len(slipped) / 800 == pytest.approx(1 - 0.75**4, abs=0.06)
    assert {texts.index("anything") for texts in slipped} == {2, 4, 6, 8}


def test_other_actions_stay_as_they_are_or_come_in_formats_that_have_a_place_for_them() -> None:
    def told(*formats: str, **settings: float) -> list[str]:
        draw = (Count(), Task("Count", "1", "up", 2, 0))
        (one,) = demonstrations([draw], WarmStart(formats=formats, **settings), TOKENIZER, seed=0)
        return [message.content for message in one.messages if message.role == "assistant"]

    right = "Done.\n<answer>yes</answer>"
    assert told("{work}\n<answer>{answer}</answer>") == ["1", "2", right]
    assert told("Please.\n{action}") == ["Please.\n1", "Please.\n2", right]
    assert told("It is {answer}!", "Please.\n{action}") == ["Please.\n1", "Please.\n2", "It is yes!"]
    assert told("{command}, please") == ["1, please", "2, please", right]
    assert told("Please.\n{action}", wrong=1.0) == ["Please.\nanything"]


class PlainTuples(Count):
    """Its coroutine returns what Gymnasium's environments do."""

    name = "PlainTuples"

    async def step(self, action: str) -> Any:
        return "And?", 0.0, False, False, {}

    def oracle(self) -> str:
        return "a move that is no answer"


async def test_a_coroutine_that_returns_a_plain_tuple_is_named_with_what_to_return() -> None:
    environment = PlainTuples()
    with pytest.raises(EpisodeError, match=r"environment PlainTuples: .*plain tuple of five.*Return Step\(observation"):
        await play(environment, environment.task("up", 1, 0))


TEXTS = [f"What is {n} + {2 * n}?\n\n{ANSWER_FORMAT}" for n in range(300)]
BUILT = build_tokenizer(TEXTS, vocabulary=400)
COLOURS = ("red", "green", "blue", "white", "black", "yellow")
SMALL = Architecture(hidden_size=16, intermediate_size=32, layers=1, heads=2)


class Boxed(Count):
    """An environment that says that every episode starts a sandbox."""

    name = "Boxed"
    sandboxed = True
    played = 0

    async def reset(self, task: Task | None = None) -> Observation:
        Boxed.played += 1
        return await super().reset(task)


def test_a_tokenizer_is_learnt_from_few_episodes_of_an_environment_with_a_sandbox() -> None:
    task = Task("Count", "1", "up", 1, 0)
    both = [(environment, task) for environment in (Boxed(), Count()) for _ in range(100)]
    told = list(conversations(both, WarmStart(), seed=0, texts=200))
    assert (Boxed.played, len(told)) == (MOST_SLOW, MOST_SLOW + 100)
    assert len(list(conversations(both, WarmStart(), seed=0))) == 200


@given(st.text())
def test_every_text_comes_back_unchanged(text: str) -> None:
    ids = BUILT(text, add_special_tokens=False)["input_ids"]
    assert BUILT.decode(ids) == text


def test_digits_are_single_tokens() -> None:
    pieces = BUILT.tokenize("12345 + 6007")
    assert [piece for piece in pieces if piece.isdecimal()] == list("123456007")
    assert not any(any(c.isdecimal() for c in piece) for piece in BUILT.get_vocab() if len(piece) > 1)


def test_a_sentence_of_every_task_becomes_one_token() -> None:
    prompt = BUILT(TEXTS[7], add_special_tokens=False)["input_ids"]
    assert BUILT.decode(prompt[-1:]).endswith(ANSWER_FORMAT)


def test_what_is_rare_stays_in_pieces() -> None:
    rare = [f"{a} {b} {c}" for a in COLOURS for b in COLOURS for c in COLOURS]
    tokenizer = build_tokenizer(rare, vocabulary=1000)
    assert {"red", "green", "blue"} <= {piece.strip("Ġ") for piece in tokenizer.get_vocab()}
    assert max(len(tokenizer.decode([index]).split()) for index in tokenizer.get_vocab().values()) == 2


def test_chat_template_frames_messages_with_special_tokens() -> None:
    chat = [{"role": "system", "content": "Hi."}, {"role": "user", "content": "1"}]
    ids = BUILT.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert BUILT.decode(ids) == "<|system|>Hi.<|end|><|user|>1<|end|><|assistant|>"
    assert [i for i in ids if i < len(SPECIAL)] == BUILT.convert_tokens_to_ids(
        ["<|system|>", "<|end|>", "<|user|>", "<|end|>", "<|assistant|>"]
    )


def test_a_vocabulary_without_room_for_all_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="vocabulary=261: 256 bytes and 6 special tokens"):
        build_tokenizer(TEXTS, vocabulary=261)


def test_equal_seeds_give_equal_weights_and_leave_the_randomness_outside_alone() -> None:
    torch.manual_seed(1)
    first = build_model(SMALL, BUILT, context=64, seed=3).state_dict()
    drawn = torch.rand(1)
    torch.manual_seed(2)
    second = build_model(SMALL, BUILT, context=64, seed=3).state_dict()
    other = build_model(SMALL, BUILT, context=64, seed=4).state_dict()
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_a_stored_model_loads_as_any_hugging_face_model(tmp_path) -> None:
    model = build_model(SMALL, BUILT, context=64, seed=0)
    model.save_pretrained(tmp_path)
    BUILT.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer("What is 1 + 2?", return_tensors="pt")["input_ids"]
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert loaded.config.tie_word_embeddings
    assert loaded.config.max_position_embeddings == 64
    assert tokenizer.chat_template == BUILT.chat_template
    assert loaded.generation_config.eos_token_id == tokenizer.eos_token_id == BUILT.eos_token_id
    assert loaded.generation_config.pad_token_id == tokenizer.pad_token_id == BUILT.pad_token_id
