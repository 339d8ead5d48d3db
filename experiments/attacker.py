"""A small blind policy that LoomRL trains for reward: it proposes sequences of actions, which the attack then proves.

It reads no task. Its words are those of the environment's prompts, oracles and source, so that it can find what a list
of texts does not hold: words put together, and commands one after the other. Trained with the advantage and the loss of
GRPO.
"""

import math
import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from loomrl.algorithms.language.advantage import group_relative
from loomrl.algorithms.losses import policy_loss
from loomrl.config import Clip
from loomrl.gym.attack.arena import Bout, Sample
from loomrl.gym.attack.attempt import Attack, Family
from loomrl.gym.attack.hunt import Hunt
from loomrl.gym.attack.words import PAYLOADS

MOST_WORDS = 96
LONGEST_ACTION = 4
"""Words of an action at most."""
MOST_ACTIONS = 6
GROUP = 24
"""Sequences that are compared on one task."""
EPOCHS = 2
WIDTH = 48
PROPOSED = 12
ENTROPY = 0.02
EXPLORED = 0.15
END = 0
"""The word that ends an action; alone, it ends the sequence."""


class Lesson(NamedTuple):
    """A sampled sequence: per word the state that it was chosen in."""

    actions: tuple[str, ...]
    words_T: list[int]
    logp_T: list[float]


class BlindPolicy(nn.Module):
    """Chooses the next word by the last two words, its place in the action, and the number of the action."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = words
        self.word = nn.Embedding(words + 1, WIDTH)
        self.place = nn.Embedding((LONGEST_ACTION + 1) * (MOST_ACTIONS + 1), WIDTH)
        self.layers = nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, words))

    def forward(self, state_K3: Tensor) -> Tensor:
        """Log-probabilities of words, by (last word, the one before, place)."""
        seen = torch.cat([self.word(state_K3[:, 0]), self.word(state_K3[:, 1]), self.place(state_K3[:, 2])], 1)
        logp_KV: Tensor = (self.layers(seen) + self.prior(state_K3)).log_softmax(-1)
        return logp_KV

    def prior(self, state_K3: Tensor) -> Tensor:
        """Logits of an untrained policy: most actions are one or two words, as commands are."""
        begins_K = state_K3[:, 2] % (LONGEST_ACTION + 1) == 0
        logits_KV = torch.zeros(len(state_K3), self.words)
        logits_KV[:, END] = torch.where(begins_K, -1.0, math.log(2 * self.words))
        return logits_KV

    def behaviour(self, state_K3: Tensor) -> Tensor:
        """Log-probabilities in training: a part is drawn as at first, so that no word is ever given up."""
        first_KV = self.prior(state_K3).softmax(-1)
        mixed_KV: Tensor = (1 - EXPLORED) * self(state_K3).exp() + EXPLORED * first_KV
        return mixed_KV.log()


def states_of(words: list[int], start: int) -> list[tuple[int, int, int]]:
    """The state before each word, and the one behind them all."""
    states = [(start, start, 0)]
    last, before, place, number = start, start, 0, 0
    for word in words:
        before = last
        last = word
        place += 1
        if word == END or place == LONGEST_ACTION:
            place = 0
            number += 1
        states.append((last, before, min(number, MOST_ACTIONS) * (LONGEST_ACTION + 1) + place))
    return states


@torch.no_grad()
def sample_group(policy: BlindPolicy, vocabulary: list[str], rng: torch.Generator) -> list[Lesson]:
    """Sequences of the policy, all at once."""
    lessons = [Writing(policy.words) for _ in range(GROUP)]
    while writing := [lesson for lesson in lessons if not lesson.done]:
        logp_KV = policy.behaviour(torch.tensor([lesson.state for lesson in writing]))
        word_K = torch.multinomial(logp_KV.exp(), 1, generator=rng)
        logp_K = logp_KV.gather(1, word_K)[:, 0].tolist()
        for lesson, word, logp in zip(writing, word_K[:, 0].tolist(), logp_K, strict=True):
            lesson.add(word, logp, vocabulary)
    return [Lesson(tuple(lesson.actions) or ("",), lesson.words, lesson.logp) for lesson in lessons]


class Writing:
    """A sequence that is being sampled."""

    def __init__(self, start: int) -> None:
        self.state = (start, start, 0)
        self.words: list[int] = []
        self.logp: list[float] = []
        self.actions: list[str] = []
        self.done = False
        self._action: list[str] = []

    def add(self, word: int, logp: float, vocabulary: list[str]) -> None:
        """Go on with this word."""
        self.words.append(word)
        self.logp.append(logp)
        self.done = word == END and not self._action
        if word != END:
            self._action.append(vocabulary[word])
        if not self.done and (word == END or len(self._action) == LONGEST_ACTION):
            self.actions.append("".join(self._action))
            self._action = []
        self.done = self.done or len(self.actions) == MOST_ACTIONS
        place = len(self.actions) * (LONGEST_ACTION + 1) + len(self._action)
        self.state = (word, self.state[0], place)


def vocabulary_of(hunt: Hunt) -> list[str]:
    """The words of an environment, the most promising first."""
    family = hunt.family
    shape = family.shape
    prompts = Counter[str]()
    for each in family.samples:
        prompts.update(set(re.findall(r"[\w./#-]+", each.prompt)))
    common = [word for word, count in prompts.most_common(40) if count >= 0.5 * len(family.samples)]
    oracle = Counter(action for each in family.solved for action in each.oracle)
    pieces = [each for each in (shape.prefix, shape.suffix) if each.strip()]
    whole = [action for action, _ in oracle.most_common(16) if len(action) < 200]
    literals = [each for each in hunt.source.literals if len(each) <= 40][:48]
    plain = [" ", "1", "true", "yes", ":", "=", *PAYLOADS[:1]]
    words = [*pieces, *whole, *plain, *common, *literals]
    return ["", *[each for each in dict.fromkeys(words) if each][: MOST_WORDS - 1]]


async def learn(hunt: Hunt) -> list[Attack]:
    """The best sequences of a policy that is trained until the hunt's time is over."""
    vocabulary = vocabulary_of(hunt)
    family = hunt.family
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    policy = BlindPolicy(len(vocabulary))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    earned: dict[tuple[str, ...], list[float]] = {}
    tasks = list(family.samples) or []
    until_s = 0.3 * hunt.clock.left_s
    idle = 0
    for update in range(400):
        if hunt.clock.left_s <= until_s or not tasks or hunt.is_slow:
            break
        task = tasks[update % len(tasks)]
        lessons = sample_group(policy, vocabulary, rng)
        rewards = []
        for lesson in lessons:
            hunt.tell(f"a sequence of the trained policy: {lesson.actions!r:.200}")
            bout = await family.arena.say(task.task, lesson.actions, again=False)
            reward = _reward(bout, family, task)
            rewards.append(reward)
            earned.setdefault(lesson.actions, []).append(reward)
        hunt.tried += GROUP
        idle = idle + 1 if max(rewards) - min(rewards) < 1e-9 else 0
        if idle >= 60:
            break  # sixty groups in a row earned nothing different: there is no reward to climb
        _update(policy, optimizer, lessons, group_relative(np.array(rewards), scale=True))
    best = sorted(earned, key=lambda each: (-_promise(earned[each]), sum(map(len, each))))
    return [Attack("say", each, guess=True) for each in best[:PROPOSED] if _promise(earned[each]) > 0]


def _reward(bout: Bout, family: Family, task: Sample) -> float:
    """Success and reward together: what is paid, solved or not."""
    return bout.success * bout.ended + family.share(bout.total)


def _promise(rewards: list[float]) -> float:
    """A mean that trusts one lucky episode less than several."""
    return sum(rewards) / (len(rewards) + 1)


def _update(policy: BlindPolicy, optimizer: torch.optim.Optimizer, lessons: list[Lesson], advantage_G: object) -> None:
    advantages = np.asarray(advantage_G, np.float64)
    state_K3 = torch.tensor([state for lesson in lessons for state in states_of(lesson.words_T, policy.words)[:-1]])
    word_K = torch.tensor([word for lesson in lessons for word in lesson.words_T])
    old_K = torch.tensor([logp for lesson in lessons for logp in lesson.logp_T], dtype=torch.float32)
    spread = [value for value, lesson in zip(advantages, lessons, strict=True) for _ in lesson.words_T]
    advantage_K = torch.tensor(spread, dtype=torch.float32)
    for _ in range(EPOCHS):
        logp_KV = policy(state_K3)
        logp_K = logp_KV.gather(1, word_K[:, None])[:, 0]
        loss_K, _ = policy_loss(logp_K, old_K, advantage_K, clip=Clip())
        entropy = -(logp_KV.exp() * logp_KV).sum(-1).mean()
        optimizer.zero_grad()
        (loss_K.mean() - ENTROPY * entropy).backward()
        optimizer.step()
