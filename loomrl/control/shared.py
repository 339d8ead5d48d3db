"""Many agents, one policy (parameter sharing): every agent of every world is a place in one vector environment.

Axes: `_W` worlds, `_A` agents of a world, `_P` places: all agents of the first world, then all of the second.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from loomrl.control.vector import ABSENT
from loomrl.errors import ConfigError, EpisodeError

Space = spaces.Space[Any]
Told = Mapping[str, Any]
"""A value for every agent, by name."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NEEDED = ("possible_agents", "observation_space", "action_space", "reset", "step", "close")
"""The attributes of a PettingZoo `ParallelEnv` before its first episode."""
TRY = "such as lambda: TeamParallel(agents=4)"


class TeamWorld(Protocol):
    """The used part of a PettingZoo `ParallelEnv`; the package itself is not needed."""

    possible_agents: Sequence[str]
    agents: Sequence[str]

    def observation_space(self, agent: str) -> Space:
        """This agent's observation space."""

    def action_space(self, agent: str) -> Space:
        """This agent's action space."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Told, Told]:
        """Begin an episode: observations and infos."""

    def step(self, actions: Told) -> tuple[Told, Told, Told, Told, Told]:
        """Observations, rewards, terminated, truncated, infos."""

    def close(self) -> None:
        """Release its resources."""


class SharedVector(VectorEnv[Any, Any, Any]):
    """`num_envs` places of agents in `num_envs / agents` worlds; place `w * agents + a` is agent a of world w.

    The step after a world's end ignores its actions and begins the next episode, with reward 0. World w of a seed is
    `create()` reset with `seed + w`. Agents may leave before the others and come later: `info["absent"]` marks the
    places without an action in the next step. They show the agent's last observation and earn 0.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012 - Gymnasium's declaration

    def __init__(self, create: Callable[[], Any], num_envs: int) -> None:
        self.worlds: list[TeamWorld] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            first = create()
            self.agents, self.single_observation_space, self.single_action_space = self._inspect(first)
            self.worlds.append(first)
            for _ in range(count_worlds(num_envs, len(self.agents)) - 1):
                self.worlds.append(create())
            self._refuse_strangers()
            undo.pop_all()
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._over_W = np.zeros(len(self.worlds), np.bool_)
        self._present_WA = np.zeros((len(self.worlds), len(self.agents)), np.bool_)
        """Who acts in the next step."""
        self._left_WA = np.zeros_like(self._present_WA)
        """Whose episode has ended; like PettingZoo, without return until the world begins anew."""
        self._seen: list[list[Any]] = [[] for _ in self.worlds]
        """The latest observations of each world."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes; from one seed, world w gets `seed + w`; without one, each world's randomness
        continues. `options["reset_mask"]` of all places leaves the other worlds as they are, as Gymnasium's do.
        """
        given = dict(options or {})
        chosen_P = given.pop("reset_mask", np.ones(self.num_envs, np.bool_))
        infos: list[Told] = [{}] * len(self.worlds)
        for w, one in enumerate(self._seeds(seed)):
            if chosen_P[w * len(self.agents) : (w + 1) * len(self.agents)].any():
                self._seen[w], infos[w] = self._begin(w, seed=one, options=given or None)
        return self._batch(self._seen), self._infos(infos)

    def step(self, actions: Any) -> tuple[Any, Floats, Bools, Bools, dict[str, Any]]:
        """Act in every world; restart those that are over."""
        rewards_P, terminated_P, truncated_P = np.zeros(self.num_envs), *np.zeros((2, self.num_envs), np.bool_)
        infos = []
        count = len(self.agents)
        chosen = self._split(actions)
        for w in range(len(self.worlds)):
            if self._over_W[w]:
                told, info = self._begin(w)
            else:
                places = slice(w * count, (w + 1) * count)
                told, rewards_P[places], terminated_P[places], truncated_P[places], info = self._act(w, chosen[places])
            self._seen[w] = told
            infos.append(info)
        return self._batch(self._seen), rewards_P, terminated_P, truncated_P, self._infos(infos)

    def close_extras(self, **_: Any) -> None:
        """Close every world."""
        for world in self.worlds:
            world.close()

    # -- one world --------------------------------------------------------------------------------------------------

    def _begin(
        self, w: int, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Any], Told]:
        world = self.worlds[w]
        seen, infos = world.reset(seed=seed, options=options)
        self._present_WA[w] = [name in world.agents for name in self.agents]
        self._left_WA[w] = False
        self._over_W[w] = False
        if not self._present_WA[w].any():
            raise EpisodeError(f"world {w}: no agent is there when the episode begins. Let reset fill its `agents`.")
        present = self._values(w, "observation", seen)
        return [present[name] if name in present else self._show_absent(name, present) for name in self.agents], infos

    def _act(self, w: int, actions: Sequence[Any]) -> tuple[list[Any], list[Any], Bools, Bools, Told]:
        world = self.worlds[w]
        acting_A = self._present_WA[w].copy()
        chosen = zip(self.agents, actions, acting_A, strict=True)
        seen, rewards, terminated, truncated, infos = world.step(
            {name: one for name, one, is_there in chosen if is_there}
        )
        paid, terminated, truncated = (
            self._values(w, name, told)
            for name, told in (("reward", rewards), ("terminated", terminated), ("truncated", truncated))
        )
        terminated_A, truncated_A = (
            np.array([told.get(name, False) for name in self.agents], np.bool_) for told in (terminated, truncated)
        )
        self._follow(w, terminated_A | truncated_A)
        acting = [name for name, is_there in zip(self.agents, acting_A | self._present_WA[w], strict=True) if is_there]
        shown = self._values(w, "observation", seen, acting)
        return (
            [shown.get(name, last) for name, last in zip(self.agents, self._seen[w], strict=True)],
            [paid.get(name, 0.0) for name in self.agents],
            terminated_A,
            truncated_A,
            infos,
        )

    def _follow(self, w: int, ended_A: Bools) -> None:
        """Who has left, who has come, and whether the world is over."""
        listed_A = np.array([name in self.worlds[w].agents for name in self.agents], np.bool_)
        vanished_A = self._present_WA[w] & ~ended_A & ~listed_A
        if vanished_A.any():
            names = ", ".join(map(str, np.array(self.agents)[vanished_A]))
            raise EpisodeError(
                f"world {w}: {names} is no longer among its agents, and neither terminated nor truncated: what its "
                "last state is worth cannot be known. Let step tell one of them for it."
            )
        self._left_WA[w] |= ended_A
        self._present_WA[w] = listed_A & ~self._left_WA[w]
        self._over_W[w] = not self._present_WA[w].any()

    def _values(self, w: int, what: str, told: Told, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The world's values for these agents, by default for those that are there."""
        if names is None:
            names = [name for name, is_there in zip(self.agents, self._present_WA[w], strict=True) if is_there]
        missing = [name for name in names if name not in told]
        if missing:
            who = ", ".join(map(str, missing))
            raise EpisodeError(f"world {w}: no {what} for {who}. reset and step tell every agent that is there.")
        return {name: told[name] for name in names}

    def _refuse_strangers(self) -> None:
        """Refuse worlds that differ, or that are the same object."""
        if len({id(world) for world in self.worlds}) < len(self.worlds):
            raise ConfigError(f"create() gave the same world more than once: make a new one at every call ({TRY}).")
        mine = self.agents, self.single_observation_space, self.single_action_space
        for w, world in enumerate(self.worlds):
            if (theirs := self._inspect(world)) != mine:
                raise ConfigError(
                    f"world {w} has other agents or spaces than world 0: {theirs} and not {mine}. "
                    "Let create() make the same kind of world at every call; vary what is inside of it."
                )

    # -- all places -------------------------------------------------------------------------------------------------

    def _inspect(self, world: Any) -> tuple[tuple[str, ...], Space, Space]:
        """The agents' names, and their common spaces."""
        refuse_turns(world)
        return tuple(world.possible_agents), *common_spaces(world, world.possible_agents)

    def _split(self, actions: Any) -> list[Any]:
        """A batch of actions → one for each place."""
        return list(iterate(self.action_space, actions))

    def _show_absent(self, agent: str, present: Mapping[str, Any]) -> Any:
        """The observation of an agent that comes later; it is not looked at."""
        return next(iter(present.values()))

    def _batch(self, seen: Sequence[Sequence[Any]]) -> Any:
        """Observations by world and agent → one batch, in new memory."""
        space = self.single_observation_space
        flat = [one for told in seen for one in told]
        return concatenate(space, flat, create_empty_array(space, n=self.num_envs))

    def _infos(self, infos: Sequence[Told]) -> dict[str, Any]:
        """Merge the worlds' infos as Gymnasium's vector environments do: arrays, with masks of the places that have a
        value.
        """
        merged: dict[str, Any] = {}
        for w, told in enumerate(infos):
            for a, name in enumerate(self.agents):
                self._add_info(merged, told.get(name, {}), w * len(self.agents) + a)
        merged[ABSENT] = ~self._present_WA.ravel()
        return merged

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None or isinstance(seed, int):
            return [None if seed is None else seed + w for w in range(len(self.worlds))]
        if len(seed) != len(self.worlds):
            raise ConfigError(f"seed={seed!r}: give {len(self.worlds)} seeds, one per world, or a single one.")
        return seed


def vector_form(world: Any) -> Callable[..., VectorEnv[Any, Any, Any]] | None:
    """The vector environment that a class of worlds names as its `vector_form`: the same places as SharedVector's, all
    stepped at once. A parent's is not taken, which would not know what the class does otherwise.
    """
    return vars(world).get("vector_form") if isinstance(world, type) else None


def count_worlds(places: int, agents: int) -> int:
    """The number of worlds for this many places."""
    if places < agents or places % agents:
        raise ConfigError(
            f"num_envs={places} counts places of agents, and a world has {agents} of them: choose a multiple of "
            f"{agents}, such as {agents * max(1, round(places / agents))}."
        )
    return places // agents


def refuse_turns(world: Any) -> None:
    """A ConfigError if this is not a ParallelEnv with agents."""
    missing = [name for name in NEEDED if not hasattr(world, name)]
    if missing or hasattr(world, "agent_iter"):
        how = f"it has no {', '.join(missing)}" if missing else "its agents take turns"
        raise ConfigError(
            f"{world!r} is no PettingZoo ParallelEnv: {how}. Give a function that makes one ({TRY}). An environment "
            "whose metadata say is_parallelizable becomes one by pettingzoo.utils.conversions.aec_to_parallel. A game "
            "of turns is entry_point=loomrl.control.turns:TurnVector with settings.game (docs/league.md), or played as "
            "text by a language policy, environments=[{id: PettingZoo}]."
        )
    if not world.possible_agents:
        raise ConfigError(f"{world!r} has no possible_agents: a policy needs at least one agent.")


def common_spaces(world: Any, names: Sequence[Any]) -> tuple[Space, Space]:
    """The spaces that these agents share; a ConfigError if one policy cannot serve them all."""
    for what in ("observation_space", "action_space"):
        known = {name: getattr(world, what)(name) for name in names}
        odd = [name for name in names if known[name] != known[names[0]]]
        if odd:
            raise ConfigError(
                f"{what} of {odd[0]} is {known[odd[0]]}, that of {names[0]} is {known[names[0]]}: one policy for "
                "both needs equal spaces. Give each kind of agent a policy (environment.policies, or RLlib's "
                "multi_agent), or pad the smaller ones to the size of the largest."
            )
    return world.observation_space(names[0]), world.action_space(names[0])
