"""Learning from pictures: what the learner says of a sample is what the engine said, and the eyes learn, too."""

import asyncio
import random
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from loomrl.algorithms.language.batch import TokenBatch, inputs
from loomrl.algorithms.language.build import build_seeing
from loomrl.algorithms.language.corpus import demonstrations
from loomrl.algorithms.language.module import embed_pictures
from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.publish import Probing
from loomrl.algorithms.language.sample import ENGINE, sample_of
from loomrl.algorithms.language.score import Scores, score
from loomrl.config import Architecture, Sampling, WarmStart
from loomrl.config.engine import Checks
from loomrl.config.language import Eyes
from loomrl.envs.multimodal import MultimodalEnvironment
from loomrl.errors import ConfigError, PolicyError
from loomrl.gym.episode import Attempt, run_episode
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.policy import Voice, speakers
from loomrl.inference.torch.engine import TorchEngine
from loomrl.types import Trajectory

EYES = Eyes(image_size=32, patch_size=8, hidden_size=32, intermediate_size=64, layers=1, heads=2)
SHAPE = Architecture(hidden_size=32, intermediate_size=64, layers=1, heads=2, vocabulary=300, vision=EYES)
MODEL, TOKENIZER, VISION = build_seeing(SHAPE, ["What colour is the shape?"] * 9, context=256, seed=0)
ENVIRONMENT = MultimodalEnvironment({"max_steps": 2})


def played(count: int) -> list[Trajectory]:
    engine = TorchEngine(MODEL.eval(), slots=8, context=256, vision=VISION)
    speaker = speakers(Voice(engine, ChatTemplate(TOKENIZER, VISION), Sampling(max_tokens=5), 256))

    async def play() -> list[Trajectory]:
        made = []
        for seed in range(count):
            task = ENVIRONMENT.task("scene.vqa", 1 + seed % 2, seed)
            environment = MultimodalEnvironment({"max_steps": 2})
            policy = speaker(environment, random.Random(seed))
            made.append(await run_episode(environment, policy, Attempt(id=str(seed), task=task, group="g")))
        return made

    return asyncio.run(play())


def scored(samples: list[Sample], rows: tuple[tuple[int, ...], ...]) -> tuple[Scores, TokenBatch]:
    batch = TokenBatch.of(samples, rows, torch.device("cpu"))
    given = inputs(batch.packed)
    return score(MODEL, {**given, "embeds_BTH": embed_pictures(MODEL, VISION, given)}), batch


def words(length: int, seed: int) -> Sample:
    """Text alone, in which the image token is a word."""
    ids_T = np.random.default_rng(seed).integers(0, 200, length).astype(np.int32)
    ids_T[2] = VISION.image_token
    return Sample(ids_T, np.arange(length) >= 4, {ENGINE: np.zeros(length, np.float32)})


@pytest.mark.parametrize("rows", [((0,), (1,), (2,)), ((0, 1), (2,)), ((1, 2, 0),)])
def test_learner_and_engine_agree_on_samples_with_pictures_however_they_are_packed(
    rows: tuple[tuple[int, ...], ...],
) -> None:
    attempts = played(3)
    assert all(len(attempt.turns) == 2 for attempt in attempts), "a reminder, so that a picture lies further back"
    samples = [sample for attempt in attempts if (sample := sample_of(attempt)) is not None]
    assert [len(sample.pictures) for sample in samples] == [1, 1, 1]
    with torch.no_grad():
        scores, batch = scored(samples, rows)
    for position, index in enumerate(batch.order):
        expected = samples[index].columns[ENGINE][samples[index].mask_T]
        got = scores["logp_K"][batch.packed.sample_K == position].numpy()
        np.testing.assert_allclose(got, expected, atol=1e-4)


def test_samples_with_and_without_pictures_share_a_row() -> None:
    samples = [sample_of(played(1)[0]), words(9, 0)]
    together, batch = scored(samples, ((1, 0),))  # type: ignore[arg-type]
    alone, _ = scored(samples[:1], ((0,),))  # type: ignore[arg-type]
    of_first = batch.packed.sample_K == batch.order.index(0)
    torch.testing.assert_close(together["logp_K"][of_first], alone["logp_K"], atol=1e-5, rtol=0)


def test_an_image_token_that_was_sampled_stays_a_token() -> None:
    sample = sample_of(played(1)[0])
    assert sample is not None
    ids_T = sample.ids_T.copy()
    ids_T[-1] = VISION.image_token
    scored([replace(sample, ids_T=ids_T)], ((0,),))
    with pytest.raises(PolicyError, match="image tokens"):
        scored([replace(sample, pictures=sample.pictures * 2)], ((0,),))


def test_eyes_get_a_gradient_from_pictures_and_a_zero_one_from_text() -> None:
    for samples, moved in (([sample_of(played(1)[0])], True), ([words(12, 1)], False)):
        MODEL.zero_grad()
        scored(samples, ((0,),))[0]["logp_K"].sum().backward()  # type: ignore[arg-type]
        gradients = [p.grad for name, p in MODEL.named_parameters() if "vision_model" in name]
        assert all(gradient is not None for gradient in gradients)
        assert any(bool(gradient.any()) for gradient in gradients if gradient is not None) is moved


def test_demonstrations_show_their_pictures_and_teach_the_answer_only() -> None:
    draws = ((ENVIRONMENT, ENVIRONMENT.task("scene.vqa", 1, seed)) for seed in range(300))
    made = list(islice(demonstrations(draws, WarmStart(), TOKENIZER, seed=0, vision=VISION), 270))
    for demonstration in made[-3:]:
        ids_T = np.asarray(demonstration.ids)
        mask_T = np.asarray(demonstration.mask)
        (picture,) = demonstration.pictures
        shown_T = VISION.seen(picture).ids_T
        assert np.array_equal(ids_T[1 : 1 + len(shown_T)], shown_T)
        assert TOKENIZER.decode(ids_T[mask_T]).endswith(f"{demonstration.messages[-1].content}<|end|>")
        scored([Sample(ids_T.astype(np.int32), mask_T, {}, demonstration.pictures)], ((0,),))
    with pytest.raises(PolicyError, match="has no vision"):
        list(demonstrations([(ENVIRONMENT, ENVIRONMENT.task("scene.vqa", 1, 0))], WarmStart(), TOKENIZER, seed=0))


def test_probes_of_a_model_that_sees_begin_with_a_picture() -> None:
    probing = Probing.of(Checks(), vocabulary=len(TOKENIZER), context=128, dtype="float32", vision=VISION)
    first, *others = probing.requests
    assert [len(request.sights) for request in probing.requests] == [1] + [0] * len(others)
    engine = TorchEngine(MODEL.eval(), slots=4, context=128, vision=VISION)
    given = asyncio.run(engine.generate(first))
    sample = Sample(
        np.concatenate([first.prompt_T, given.ids_T]),
        np.repeat([False, True], [len(first.prompt_T), len(given.ids_T)]),
        pictures=tuple(sight.picture for sight in first.sights),
    )
    with torch.no_grad():
        logp_K = scored([sample], ((0,),))[0]["logp_K"].numpy()
    np.testing.assert_allclose(logp_K, given.logprobs_T, atol=1e-4)


@pytest.mark.parametrize("wrong", [{"patch_size": 12}, {"heads": 3}])
def test_eyes_of_impossible_shape_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must be a multiple"):
        Eyes.parse({"image_size": 64, **wrong}, origin="vision")


def test_without_pillow_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from loomrl.envs.multimodal.canvas import new_canvas

    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[vision\]'"):
        new_canvas(8, 8)
