"""Memories of control policies: what they add to an observation, and the state that goes on with an episode.

A state is `S` numbers per episode, all zero where one begins. It is what travels: in rollouts, checkpoints, exported
policies and calls to `/v1/act`.

Axes: `_B` episodes, `_T` steps, `_F` numbers of an observation, `_G` numbers that a memory adds, `_S` of a state,
`_P` pieces of episodes of at most `_L` steps, `_W` steps of a window, `_H` heads, `_D` numbers of a head.
"""

import math
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override

from loomrl.config import control as kinds
from loomrl.errors import ConfigError


class History(NamedTuple):
    """The past of sequences of steps: the state before their first, and where later episodes begin in them."""

    state_BS: Tensor
    begins_TB: Tensor


class MemoryState:
    """The state of a policy's memory in running episodes, a row each. Acting with it changes it."""

    def __init__(self, numbers_BS: NDArray[np.float32]) -> None:
        self.numbers_BS = numbers_BS
        """A row of zeros is an episode that begins."""

    def forget(self, over_B: NDArray[np.bool_]) -> None:
        """Begin anew in these rows, whose episodes are over."""
        self.numbers_BS[over_B] = 0.0

    def copy(self) -> "MemoryState":
        """The same, for a second way on."""
        return MemoryState(self.numbers_BS.copy())

    def one(self, row: int) -> "MemoryState":
        """A copy of one row."""
        return MemoryState(self.numbers_BS[row : row + 1].copy())

    def first(self, count: int) -> "MemoryState":
        """The state of `count` episodes at their first step."""
        return MemoryState(np.zeros((count, self.numbers_BS.shape[1]), np.float32))


class MemoryNet(nn.Module):
    """Adds `size` numbers to every observation; its state is `state` numbers per episode."""

    size: int
    state: int

    def run(self, shown_LPF: Tensor, state_PS: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers added to observations that follow each other, `[L, P, G]`, and the state after them."""
        raise NotImplementedError

    def step(self, shown_BF: Tensor, state_BS: Tensor) -> tuple[Tensor, Tensor]:
        """The same for one observation of each episode."""
        added_1BG, state_BS = self.run(shown_BF[None], state_BS)
        return added_1BG[0], state_BS

    def unroll(self, shown_TBF: Tensor, history: History) -> Tensor:
        """The numbers added to observations of sequences in which episodes begin, `[T, B, G]`.

        Sequences are cut where episodes begin, and the pieces run side by side: the more there are, the faster.
        """
        piece_TB, place_TB = _pieces(history.begins_TB)
        count = int(piece_TB.max()) + 1
        longest = int(place_TB.max()) + 1
        shown_LPF = shown_TBF.new_zeros(longest, count, shown_TBF.shape[-1])
        shown_LPF[place_TB, piece_TB] = shown_TBF
        state_PS = shown_TBF.new_zeros(count, self.state)
        state_PS[piece_TB[0]] = history.state_BS
        added_LPG, _ = self.run(shown_LPF, state_PS)
        return added_LPG[place_TB, piece_TB]


class RecurrentNet(MemoryNet):
    """A GRU or an LSTM; the state is the layer's."""

    def __init__(self, numbers: int, settings: kinds.Recurrent) -> None:
        super().__init__()
        self.size = settings.size
        self._is_gru = settings.kind == "gru"
        self.state = self.size if self._is_gru else 2 * self.size
        self.layer = nn.GRU(numbers, self.size) if self._is_gru else nn.LSTM(numbers, self.size)
        for name, parameter in self.layer.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.orthogonal_(parameter)

    @override
    def run(self, shown_LPF: Tensor, state_PS: Tensor) -> tuple[Tensor, Tensor]:
        if self._is_gru:
            added_LPG, state_1PS = self.layer(shown_LPF, state_PS[None])
            return added_LPG, state_1PS[0]
        parts = tuple(part.contiguous() for part in state_PS[None].chunk(2, -1))
        added_LPG, after = self.layer(shown_LPF, parts)
        return added_LPG, torch.cat(after, -1)[0]

    @override
    def step(self, shown_BF: Tensor, state_BS: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's formula, which for a single step is several times faster than the layer."""
        from_shown, from_state, *shifts = cast(list[Tensor], self.layer._flat_weights)
        before_BG = state_BS[:, : self.size]
        shown_BX = linear(shown_BF, from_shown, shifts[0])
        past_BX = linear(before_BG, from_state, shifts[1])
        if self._is_gru:
            (reset, keep, new) = shown_BX.chunk(3, -1)
            (past_reset, past_keep, past_new) = past_BX.chunk(3, -1)
            new = (new + (reset + past_reset).sigmoid() * past_new).tanh()
            after_BG = torch.lerp(new, before_BG, (keep + past_keep).sigmoid())
            return after_BG, after_BG
        enter, keep, new, leave = (shown_BX + past_BX).chunk(4, -1)
        cell_BG = keep.sigmoid() * state_BS[:, self.size :] + enter.sigmoid() * new.tanh()
        after_BG = leave.sigmoid() * cell_BG.tanh()
        return after_BG, torch.cat([after_BG, cell_BG], -1)


class FramesNet(MemoryNet):
    """The observations before the present one; the state is these."""

    def __init__(self, numbers: int, settings: kinds.Frames) -> None:
        super().__init__()
        self._past = settings.count - 1
        self.size = self.state = self._past * numbers

    @override
    def run(self, shown_LPF: Tensor, state_PS: Tensor) -> tuple[Tensor, Tensor]:
        steps = shown_LPF.shape[0]
        whole = torch.cat([state_PS.unflatten(1, (self._past, -1)).transpose(0, 1), shown_LPF])
        added_LPG = torch.cat([whole[place : place + steps] for place in range(self._past)], -1)
        return added_LPG, whole[steps:].transpose(0, 1).flatten(1)


class AttentionNet(MemoryNet):
    """Attention of the present observation to those of a window, by content and by distance.

    The state is the observations before the present one, each with a 1 that says that it was there.
    """

    def __init__(self, numbers: int, settings: kinds.Attention) -> None:
        super().__init__()
        self.size = settings.size
        self._window = settings.window
        self._heads = settings.heads
        self.state = (self._window - 1) * (numbers + 1)
        self._scale = math.sqrt(self._heads / self.size)
        self.query, self.key, self.value = (nn.Linear(numbers, self.size) for _ in range(3))
        self.distance = nn.Parameter(torch.zeros(self._window, self.size))
        """A key for every place of the window, the present one last."""

    @override
    def run(self, shown_LPF: Tensor, state_PS: Tensor) -> tuple[Tensor, Tensor]:
        steps = shown_LPF.shape[0]
        there = torch.cat([shown_LPF, torch.ones_like(shown_LPF[..., :1])], -1)
        whole = torch.cat([state_PS.unflatten(1, (self._window - 1, -1)).transpose(0, 1), there])
        queries_LPHD = self._split(self.query(shown_LPF))
        keys, values = (self._split(layer(whole[..., :-1])) for layer in (self.key, self.value))
        scores_LPHW = torch.einsum("lphd,lphdw->lphw", queries_LPHD, keys.unfold(0, self._window, 1))
        scores_LPHW = scores_LPHW + torch.einsum("lphd,whd->lphw", queries_LPHD, self._split(self.distance))
        there_LPW = whole[..., -1].unfold(0, self._window, 1) > 0
        scores_LPHW = scores_LPHW.masked_fill(~there_LPW[:, :, None], -math.inf)
        weights_LPHW = (scores_LPHW * self._scale).softmax(-1)
        added = torch.einsum("lphw,lphdw->lphd", weights_LPHW, values.unfold(0, self._window, 1))
        return added.flatten(2), whole[steps:].transpose(0, 1).flatten(1)

    def _split(self, numbers: Tensor) -> Tensor:
        parts: Tensor = numbers.unflatten(-1, (self._heads, -1))
        return parts


def _pieces(begins_TB: Tensor) -> tuple[Tensor, Tensor]:
    """The number of the piece that each step is part of, and its place there."""
    steps, episodes = begins_TB.shape
    starts_BT = begins_TB.T.clone()
    starts_BT[:, 0] = True
    piece_BT = starts_BT.flatten().cumsum(0).view(episodes, steps) - 1
    step_BT = torch.arange(steps, device=begins_TB.device).expand(episodes, -1)
    start_BT = torch.where(starts_BT, step_BT, 0).cummax(1).values
    return piece_BT.T, (step_BT - start_BT).T


def open_memory(settings: kinds.Memory, numbers: int) -> MemoryNet:
    """The memory with these settings, of observations of so many numbers."""
    match settings:
        case kinds.Recurrent():
            return RecurrentNet(numbers, settings)
        case kinds.Frames():
            return FramesNet(numbers, settings)
        case kinds.Attention():
            return AttentionNet(numbers, settings)


def check_state(state: MemoryState | None, memory: MemoryNet | None, *, count: int) -> None:
    """A ConfigError if this is no state of the memory in so many episodes."""
    if memory is None:
        if state is not None:
            raise ConfigError("this policy has no memory: leave state out.")
        return
    if state is None:
        raise ConfigError(
            "this policy has a memory: say act(observation, state=state), with state = policy.state() where an episode "
            "begins."
        )
    if state.numbers_BS.shape != (count, memory.state):
        raise ConfigError(
            f"the state has shape {state.numbers_BS.shape}, and {(count, memory.state)} is needed: {memory.state} "
            "numbers for each observation. Where episodes begin it is policy.state(count)."
        )
