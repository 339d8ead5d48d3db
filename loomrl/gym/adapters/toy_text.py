"""Gymnasium's toy_text worlds as tasks: levels, success, and one oracle for all.

They publish their transitions (`env.unwrapped.P`), so the shortest path to success is known from every state.
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
"""State → distance to success in actions, and the first action."""


def frozen_lake(level: int, seed: int) -> gymnasium.Env[Any, Any]:
    """A lake from this seed, larger and with more holes at higher levels; the time limit is twice the shortest path."""
    rng = Random(f"{level}:{seed}")
    tiles = generate_random_map(size=between(level, 3, 8), p=0.75, seed=rng.getrandbits(31))
    env = gymnasium.make(
        "FrozenLake-v1", desc=tiles, is_slippery=False, render_mode="ansi", disable_env_checker=True
    ).unwrapped
    return gymnasium.wrappers.TimeLimit(env, shortest(env)[0][0] * 2)


def cliff_walking(level: int, seed: int) -> gymnasium.Env[Any, Any]:
    """The cliff, with a start further from the goal at higher levels."""
    return _from_afar("CliffWalking-v1", level, seed)


def taxi(level: int, seed: int) -> gymnasium.Env[Any, Any]:
    """The taxi, with a longer route at higher levels."""
    return _from_afar("Taxi-v3", level, seed)


def _from_afar(id: str, level: int, seed: int) -> gymnasium.Env[Any, Any]:
    """The world, started in a state whose distance fits the level; the time limit is twice that distance."""
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
    """The world and its paths, loaded once per process: copies share its transitions, which never change."""
    env: Any = gymnasium.make(id, render_mode="ansi", disable_env_checker=True).unwrapped
    path = {state: way for state, way in shortest(env).items() if _can_start(env, id, state)}
    return env, path


def _can_start(env: Any, id: str, state: int) -> bool:
    """A possible start: not on the cliff, and for the taxi one of its own initial states."""
    return bool(env.initial_state_distrib[state]) if id.startswith("Taxi") else state < 37


def shortest(env: Any) -> Path:
    """The shortest path from every state to the best-paid end. Transitions must be deterministic."""
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
    """The map, and its colours in words."""
    world: Any = env.unwrapped
    row, column, passenger, destination = world.decode(int(observation))
    walls = "\n".join(line.tobytes().decode() for line in world.desc)
    return f"{walls}\nTaxi at ({row}, {column}). Passenger {_PLACES[passenger]}. Destination {_PLACES[destination]}."
