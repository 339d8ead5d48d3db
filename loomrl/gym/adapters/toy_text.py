"""The worlds of Gymnasium's toy_text, made into tasks: their levels, their successes, and one oracle for all of them.

They tell their transitions (`env.unwrapped.P`), so that a shortest path to success is known from everywhere.
"""

import copy
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

from loomrl.errors import EpisodeError
from loomrl.gym.generate import between

FROZEN = """Walk from S to G over frozen tiles (F). A hole (H) ends the walk. Brackets mark where you are."""
CLIFF = """Walk from x to T. A step onto the cliff (C) leads back to the lower left corner, and then it was in vain."""
TAXI = """Drive to the passenger, pickup, drive to the destination, dropoff. Places are (row, column), (0, 0) is the \
top left. No way through walls (|)."""
_PLACES = ("at R (0, 0)", "at G (0, 4)", "at Y (4, 0)", "at B (4, 3)", "in the taxi")

Path = Mapping[int, tuple[int, int]]
"""State → how many actions success is away, and the first of them."""


def frozen_lake(level: int, seed: int) -> gymnasium.Env[Any, Any]:
    """A lake of this seed, larger and with more holes as the level grows, with time for twice the walk."""
    rng = Random(f"{level}:{seed}")
    tiles = generate_random_map(size=between(level, 3, 8), p=0.75, seed=rng.getrandbits(31))
    env = gymnasium.make(
        "FrozenLake-v1", desc=tiles, is_slippery=False, render_mode="ansi", disable_env_checker=True
    ).unwrapped
    return gymnasium.wrappers.TimeLimit(env, shortest(env)[0][0] * 2)


def cliff_walking(level: int, seed: int) -> gymnasium.Env[Any, Any]:
    """The cliff, from a place that is further away as the level grows."""
    return _from_afar("CliffWalking-v1", level, seed)


def taxi(level: int, seed: int) -> gymnasium.Env[Any, Any]:
    """The taxi, with a longer way as the level grows."""
    return _from_afar("Taxi-v3", level, seed)


def _from_afar(id: str, level: int, seed: int) -> gymnasium.Env[Any, Any]:
    """The world begun at a state of this seed whose distance fits the level, with time for twice the way."""
    original, path = _original(id)
    distances = [distance for distance, _ in path.values()]
    wanted = between(level, max(2, min(distances)), max(distances))
    starts = sorted(state for state, (distance, _) in path.items() if abs(distance - wanted) <= 1)
    env: Any = copy.copy(original)
    env.initial_state_distrib = original.initial_state_distrib * 0
    env.initial_state_distrib[Random(f"{level}:{seed}").choice(starts)] = 1
    return gymnasium.wrappers.TimeLimit(env, wanted * 2)


@lru_cache(maxsize=4)
def _original(id: str) -> tuple[Any, Path]:
    """The world and its paths, once for a process: copies of it share its transitions, which nothing changes."""
    env: Any = gymnasium.make(id, render_mode="ansi", disable_env_checker=True).unwrapped
    path = {state: way for state, way in shortest(env).items() if _can_start(env, id, state)}
    return env, path


def _can_start(env: Any, id: str, state: int) -> bool:
    """Not on the cliff, nor where the passenger has arrived or is on the way already."""
    return bool(env.initial_state_distrib[state]) if id.startswith("Taxi") else state < 37


def shortest(env: Any) -> Path:
    """From every state that has one, the shortest path to the end that pays most. Transitions must be certain."""
    back: dict[int, list[tuple[int, int]]] = {}
    goals: list[tuple[int, int]] = []
    best = -float("inf")
    for state, actions in env.unwrapped.P.items():
        for action, outcomes in actions.items():
            if len(outcomes) != 1:
                raise EpisodeError("the shortest path is known only where each action has one outcome.")
            _, follower, reward, terminated = outcomes[0]
            if not terminated:
                back.setdefault(int(follower), []).append((state, action))
            elif reward >= best and follower != state:
                goals = goals * (reward == best) + [(state, action)]
                best = reward
    return _distances(back, goals)


def _distances(back: Mapping[int, list[tuple[int, int]]], goals: list[tuple[int, int]]) -> Path:
    path: dict[int, tuple[int, int]] = {}
    queue = deque((state, action, 1) for state, action in goals)
    while queue:
        state, action, distance = queue.popleft()
        if state not in path:
            path[state] = (distance, action)
            queue.extend((earlier, step, distance + 1) for earlier, step in back.get(state, ()))
    return path


def oracle(env: gymnasium.Env[Any, Any]) -> int:
    """The first action of a shortest path."""
    world: Any = env.unwrapped
    known = _original(world.spec.id)[1] if world.spec.id != "FrozenLake-v1" else {}
    state = int(world.s)
    return (known if state in known else shortest(env))[state][1]


def show_taxi(env: gymnasium.Env[Any, Any], observation: Any) -> str:
    """The map, and in words what its colours say."""
    world: Any = env.unwrapped
    row, column, passenger, destination = world.decode(int(observation))
    walls = "\n".join(line.tobytes().decode() for line in world.desc)
    return f"{walls}\nTaxi at ({row}, {column}). Passenger {_PLACES[passenger]}. Destination {_PLACES[destination]}."
