"""Pictures in prompts: where they go, what an engine makes of them, and that ids never become pictures by chance."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_models import tiny_model, tiny_tokenizer
from sample_pictures import (
    noise,
    plain_logprobs,
    save_seeing_model,
    seeing_model,
    seeing_request,
    seeing_tokenizer,
)

from loomrl.config import Sampling
from loomrl.envs.multimodal import MultimodalEnvironment
from loomrl.errors import PolicyError
from loomrl.inference.chat import ChatTemplate, Transcript
from loomrl.inference.engine import Completion, Request
from loomrl.inference.model import open_model, open_tokenizer
from loomrl.inference.policy import Voice, speakers
from loomrl.inference.remote.dialect import as_openai
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.vision import embed_with_pictures, open_vision
from loomrl.inference.weights.sealed import seal
from loomrl.picture import from_url
from loomrl.types import Message

MODEL, VISION = seeing_model()
TOLERANCE = 1e-4


def engine(slots: int = 4) -> TorchEngine:
    return TorchEngine(MODEL, slots=slots, context=96, vision=VISION)


def answered(served: TorchEngine, asked: Sequence[Request]) -> list[Completion]:
    async def ask() -> list[Completion]:
        return list(await asyncio.gather(*map(served.generate, asked)))

    return asyncio.run(ask())


def worst(asked: Sequence[Request], given: Sequence[Completion]) -> float:
    pairs = zip(asked, given, strict=True)
    return max(float(np.abs(plain_logprobs(MODEL, VISION, a, g) - g.logprobs_T).max()) for a, g in pairs)


def test_logprobs_are_those_of_a_plain_forward_pass_with_the_pictures() -> None:
    asked = [seeing_request(VISION, [noise(s) for s in range(n)], seed) for seed, n in enumerate((1, 2, 0, 1, 2, 1))]
    assert worst(asked, answered(engine(), asked)) < TOLERANCE


def test_the_same_text_with_another_picture_is_another_prompt() -> None:
    one, other = (seeing_request(VISION, [noise(picture)], temperature=0) for picture in (1, 2))
    assert np.array_equal(one.prompt_T, other.prompt_T)
    asked = [one, other, one, other]
    given = answered(engine(slots=8), asked)
    assert worst(asked, given) < TOLERANCE
    assert not np.allclose(given[0].logprobs_T, given[1].logprobs_T, atol=1e-2)
    assert np.allclose(given[0].logprobs_T, given[2].logprobs_T, atol=1e-5)


def test_new_weights_see_old_pictures_anew() -> None:
    served = TorchEngine(seeing_model(0)[0], slots=2, context=96, vision=VISION)
    other, _ = seeing_model(5)
    asked = seeing_request(VISION, [noise(3)], max_tokens=20)

    async def load_between() -> Completion:
        open_request = asyncio.ensure_future(served.generate(asked))
        await asyncio.sleep(0.01)
        await served.load(seal(dict(other.state_dict()), 1))
        return await open_request

    given = asyncio.run(load_between())
    after = given.versions_T == 1
    expected = plain_logprobs(other, VISION, asked, given)
    assert after.any()
    assert np.abs(expected - given.logprobs_T)[after].max() < TOLERANCE


def test_an_image_token_that_was_sampled_is_no_picture() -> None:
    first = seeing_request(VISION, [noise(0)], max_tokens=1)
    ids_T = np.concatenate([first.prompt_T, [VISION.image_token] * 3, [5]]).astype(np.int32)
    asked = [Request(ids_T, Sampling(max_tokens=4), frozenset(), 1, first.sights)]
    assert worst(asked, answered(engine(), asked)) < TOLERANCE


def test_pictures_where_the_prompt_has_none_are_refused() -> None:
    asked = seeing_request(VISION, [noise(0)])
    (sight,) = asked.sights
    wrong = replace(asked, sights=(replace(sight, start=sight.start + 1),))
    with pytest.raises(PolicyError, match="not what stands for its picture"):
        answered(engine(), [wrong])
    with pytest.raises(PolicyError, match="shows its model none"):
        answered(TorchEngine(tiny_model(), slots=1, context=96), [replace(asked, prompt_T=asked.prompt_T % 64)])


def test_a_broken_picture_fails_its_own_request() -> None:
    asked = seeing_request(VISION, [noise(0)])
    (sight,) = asked.sights
    broken = replace(asked, sights=(replace(sight, picture=sight.picture[:60]),))
    with pytest.raises(PolicyError, match="cannot be read"):
        answered(engine(), [broken])


@pytest.mark.parametrize("places", [0, 5])
def test_fewer_or_more_places_than_pictures_are_an_error(places: int) -> None:
    ids_T = torch.zeros(1, 8, dtype=torch.long)
    where = torch.zeros(places, dtype=torch.long), torch.arange(places)
    with pytest.raises(PolicyError, match="image tokens"):
        embed_with_pictures(MODEL, ids_T, where, [VISION.seen(noise(0))])


def test_a_folder_brings_its_vision(tmp_path: Path) -> None:
    save_seeing_model(tmp_path)
    opened, vision = open_model(tmp_path), open_vision(tmp_path)
    assert vision is not None
    assert type(opened) is type(MODEL)
    asked = seeing_request(vision, [noise(4, size=50)], temperature=0)
    served = TorchEngine(opened, slots=2, context=96, vision=vision)
    assert worst([asked], answered(served, [asked])) < TOLERANCE
    assert open_tokenizer(tmp_path).all_special_tokens == seeing_tokenizer().all_special_tokens


def test_pictures_come_before_the_text_of_their_message() -> None:
    transcript = Transcript(ChatTemplate(seeing_tokenizer(), VISION))
    pictures = noise(0), noise(1), noise(2)
    transcript.observe([Message("user", "Look.", pictures[:2])])
    transcript.append_sampled(ChatTemplate(seeing_tokenizer(), VISION).encode("I do."))
    transcript.observe([Message("user", "And now?", pictures[2:])])
    transcript.append_sampled([65, 66])
    transcript.observe([Message("user", "And <image> now?", pictures[:1])])
    assert [sight.picture for sight in transcript.sights] == [*pictures, pictures[0]]
    for sight in transcript.sights:
        ids_T = VISION.seen(sight.picture).ids_T
        assert np.array_equal(transcript.ids[sight.start : sight.start + len(ids_T)], ids_T)
    count = int((transcript.ids == VISION.image_token).sum())
    assert count == 4 * len(VISION.places(transcript.sights[0])), "a name in a message's text is text"


def test_a_speaker_shows_its_engine_what_the_environment_shows() -> None:
    seen: list[Request] = []

    class Recording(TorchEngine):
        async def generate(self, request: Request) -> Completion:
            seen.append(request)
            return await super().generate(request)

    chat = ChatTemplate(seeing_tokenizer(), VISION)
    served = Recording(MODEL, slots=2, context=96, vision=VISION)
    voice = Voice(served, chat, Sampling(max_tokens=3), 96)
    speaker = speakers(voice)(MultimodalEnvironment(), random.Random(0))
    said = (Message("user", "What is it?", (noise(1),)),)

    async def talk() -> None:
        first = await speaker.act(said)
        await speaker.act((*said, Message("assistant", first.text), Message("user", "Sure?", (noise(2),))))

    asyncio.run(talk())
    assert [[sight.picture for sight in request.sights] for request in seen] == [[noise(1)], [noise(1), noise(2)]]
    assert worst(seen[1:], answered(engine(), seen[1:])) < TOLERANCE


def test_a_model_of_text_refuses_pictures_with_a_remedy() -> None:
    with pytest.raises(PolicyError, match="has no vision"):
        Transcript(ChatTemplate(tiny_tokenizer())).observe([Message("user", "Look.", (noise(0),))])


def test_servers_get_pictures_as_data_urls() -> None:
    assert as_openai(Message("user", "Hi")) == {"role": "user", "content": "Hi"}
    message = as_openai(Message("user", "What is it?", (noise(0), noise(1))))
    *pictures, text = message["content"]
    assert [from_url(part["image_url"]["url"]) for part in pictures] == [noise(0), noise(1)]
    assert text == {"type": "text", "text": "What is it?"}
