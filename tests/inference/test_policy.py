"""Speakers: whole episodes through the pool, every token as it was sampled."""

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_models import logprobs, request, tiny_model, tiny_tokenizer

import loomrl.inference.open as inference_open
from loomrl.config import LanguagePolicy, RolloutConfig, Sampling, ScriptedPolicy
from loomrl.errors import ConfigError, PolicyError
from loomrl.gym.base import BaseEnvironment, Step
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.policy import OraclePolicy
from loomrl.gym.pool import LoomRLGym
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import Completion, Request
from loomrl.inference.footprint import ModelShape
from loomrl.inference.model import config_of, save_model
from loomrl.inference.open import Opening, fitted
from loomrl.inference.policy import Voice, open_policy, speakers
from loomrl.inference.torch.engine import TorchEngine
from loomrl.types import NO_VERSION, End, Message, Reward, Task, Trajectory

TURNS = 3


class Echo(BaseEnvironment):
    """Says back what it hears, three times."""

    async def reset(self, task: Task | None = None) -> tuple[Message, ...]:
        self._left = TURNS
        return Message("system", "Talk."), Message("user", "hello")

    async def step(self, action: str) -> Step:
        self._left -= 1
        return Step((Message("user", f"you said {action}"),), Reward(0.25, {"talk": 0.25}), self._left == 0, False, {})


TASK = Task("Echo", "1", "default", 1, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tiny_model(), tiny_tokenizer(), tmp_path / "model")
    return tmp_path / "model"


async def play(choice: LanguagePolicy, *, size: int = 4) -> list[Trajectory]:
    def make(name: str, settings: Any) -> BaseEnvironment:
        return Echo()

    async with LoomRLGym(RolloutConfig(concurrency=8), make=make, open_policy=open_policy) as gym:
        attempts = [Attempt(id=f"g/{index}", task=TASK, group="g", group_size=size) for index in range(size)]
        groups = await gym.collect(Plan(attempt=attempt, policy=choice) for attempt in attempts)
    return list(groups[0].trajectories)


async def test_the_tokens_of_an_episode_are_what_the_engine_saw_and_drew(folder: Path) -> None:
    model, chat = tiny_model(), ChatTemplate(tiny_tokenizer())
    choice = LanguagePolicy(
        path=str(folder), sampling=Sampling(temperature=0.8, max_tokens=12, entropies=True), version=6
    )
    trajectories = await play(choice)
    assert len({t.tokens.ids_T.tobytes() for t in trajectories if t.tokens}) == 4
    for trajectory in trajectories:
        assert trajectory.end is End.TERMINATED, trajectory.failure
        assert (trajectory.first_version, trajectory.last_version) == (6, 6)
        assert len(trajectory.turns) == TURNS
        before = np.zeros(0, np.int32)
        for turn in trajectory.turns:
            assert turn.tokens is not None
            ids, mask = turn.tokens.ids_T, turn.tokens.mask_T
            prompt = np.concatenate([before, ids[~mask]])
            assert (np.diff(mask.astype(int)) >= 0).all()
            assert turn.action == chat.decode(ids[mask])
            expected = logprobs(model, request(prompt, temperature=0.8), ids[mask])
            assert np.abs(turn.tokens.logprobs_T[mask] - expected).max() <= 1e-4
            assert not turn.tokens.logprobs_T[~mask].any()
            assert turn.tokens.entropies_T is not None
            assert (turn.tokens.entropies_T[mask] > 0).all()
            assert not turn.tokens.entropies_T[~mask].any()
            assert set(turn.tokens.versions_T[mask]) == {6}
            assert set(turn.tokens.versions_T[~mask]) == {NO_VERSION}
            before = np.concatenate([before, ids])


async def test_the_same_plans_are_played_alike(folder: Path) -> None:
    choice = LanguagePolicy(path=str(folder), sampling=Sampling(max_tokens=8))
    first, second = [await play(choice) for _ in range(2)]
    assert [t.turns for t in first] == [t.turns for t in second]


async def test_a_conversation_that_outgrows_the_context_is_truncated_with_the_reward_so_far(folder: Path) -> None:
    trajectories = await play(LanguagePolicy(path=str(folder), context=60, sampling=Sampling(max_tokens=24)), size=8)
    cut = [t for t in trajectories if t.end is End.TRUNCATED]
    assert cut
    for trajectory in cut:
        assert trajectory.failure is None
        assert trajectory.turns
        assert trajectory.reward.total == pytest.approx(0.25 * len(trajectory.turns))
        assert "context=60 tokens are too few" in trajectory.extra["info"]["truncated_by"]
    assert not [t for t in trajectories if t.end is End.FAILED]
    assert all(len(t.tokens) <= 60 for t in trajectories if t.tokens is not None)


async def test_a_prompt_that_outgrows_the_context_is_a_failure(folder: Path) -> None:
    trajectories = await play(LanguagePolicy(path=str(folder), context=4, sampling=Sampling(max_tokens=24)))
    assert {t.end for t in trajectories} == {End.FAILED}
    for trajectory in trajectories:
        assert trajectory.failure is not None
        assert trajectory.failure.boundary == "policy"
        assert "context=4 tokens are too few" in trajectory.failure.message


class Recording(TorchEngine):
    """Remembers what it was asked, and never stops early."""

    def __init__(self) -> None:
        super().__init__(tiny_model(), slots=4)
        self.asked: list[Request] = []

    async def generate(self, request: Request) -> Completion:
        self.asked.append(request)
        return await super().generate(replace(request, stop=frozenset()))


async def test_the_length_of_an_action_is_cut_to_the_room_that_is_left() -> None:
    engine, chat = Recording(), ChatTemplate(tiny_tokenizer())
    speaker = speakers(Voice(engine, chat, Sampling(max_tokens=9), 20))(Echo(), random.Random(0))
    conversation: tuple[Message, ...] = (Message("user", "x"),)
    lengths = []
    for _ in range(2):
        action = await speaker.act(conversation)
        conversation += (Message("assistant", action.text), Message("user", "y"))
        lengths.append(int(action.tokens.mask_T.sum()))  # type: ignore[union-attr]
    assert lengths == [9, 2]
    with pytest.raises(PolicyError, match="25 before an answer"):
        await speaker.act(conversation)


async def test_seeds_come_from_the_episodes_own_randomness() -> None:
    engine, chat = Recording(), ChatTemplate(tiny_tokenizer())
    factory = speakers(Voice(engine, chat, Sampling(max_tokens=2), 64))
    for seed in (1, 1, 2):
        await factory(Echo(), random.Random(seed)).act((Message("user", "x"),))
    first, again, other = (asked.seed for asked in engine.asked)
    assert first == again != other


class Slow(TorchEngine):
    """Takes its time for every step."""

    STEP_S = 0.06

    def __init__(self, slots: int) -> None:
        super().__init__(tiny_model(), slots=slots)

    def _step(self) -> bool:
        time.sleep(self.STEP_S)
        return super()._step()


async def play_slowly(slots: int, *, attempts: int, tokens: int) -> list[Trajectory]:
    """Attempts of which each would be in time alone, with deadlines of about eight steps."""
    voice = Voice(Slow(slots), ChatTemplate(tiny_tokenizer()), Sampling(max_tokens=tokens), 256)

    def make(name: str, settings: Any) -> BaseEnvironment:
        return Echo()

    limits = RolloutConfig(concurrency=attempts, turn_timeout_s=0.5, episode_timeout_s=1.0)
    async with LoomRLGym(limits, make=make, open_policy=lambda choice: speakers(voice)) as gym:
        asked = [Attempt(id=f"g/{index}", task=TASK, group="g", group_size=attempts) for index in range(attempts)]
        groups = await gym.collect(Plan(attempt=attempt, policy=LanguagePolicy(path="-")) for attempt in asked)
    return list(groups[0].trajectories)


@pytest.mark.parametrize(("slots", "attempts", "tokens"), [(1, 12, 1), (12, 12, 12)], ids=["queue", "batch"])
async def test_time_in_which_an_engine_works_for_others_is_not_an_attempts(
    slots: int, attempts: int, tokens: int
) -> None:
    began = time.monotonic()
    for trajectory in await play_slowly(slots, attempts=attempts, tokens=tokens):
        assert trajectory.end is End.TERMINATED, trajectory.failure
    assert time.monotonic() - began > 1.0, "longer than the deadlines"


async def test_an_act_that_itself_takes_too_long_fails_and_names_the_setting() -> None:
    (alone,) = await play_slowly(1, attempts=1, tokens=64)
    assert alone.failure is not None
    assert alone.failure.boundary == "policy"
    assert "act() took longer than rollout.turn_timeout_s=0.5" in alone.failure.message


def test_other_choices_are_opened_as_ever() -> None:
    assert open_policy(ScriptedPolicy()) is OraclePolicy


def test_a_policy_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        open_policy(LanguagePolicy(path=str(tmp_path / "none")))


def test_a_model_has_as_many_slots_as_fit_and_is_refused_before_it_is_loaded_if_none_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = Opening(origin=folder, context=64, slots=256)
    shape = ModelShape.of(config_of(folder))
    cache = shape.cache_bytes(64, "float32")
    monkeypatch.setattr(inference_open, "free_memory", lambda: int((shape.engine_bytes("float32") + 3.5 * cache) / 0.9))
    assert fitted(opening).slots == 3
    monkeypatch.setattr(inference_open, "free_memory", lambda: 1000)
    monkeypatch.setattr(inference_open, "open_model", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(ConfigError, match=r"needs 0\.\d GB in float32 .* 0\.0 GB of memory are free on this machine"):
        open_policy(LanguagePolicy(path=str(folder)))


def test_a_context_beyond_the_models_is_refused_when_the_policy_is_opened(folder: Path) -> None:
    with pytest.raises(ConfigError, match="context=4096"):
        open_policy(LanguagePolicy(path=str(folder), context=4096))
