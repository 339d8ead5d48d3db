"""Real OpenEnv servers for the tests, below one port: it is printed, and served until the process is killed."""

import os
import random
import socket

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field
from starlette.applications import Starlette


class Guess(Action):
    number: int = Field(ge=1, le=100, description="your guess")


class Heard(Observation):
    text: str


class Hidden(Environment):
    """A hidden number; every guess is answered with higher or lower."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._number, self._state = 0, State()

    def reset(self, seed=None, episode_id=None, most=100, **kwargs):
        self._number, self._state = random.Random(seed).randint(1, most), State(step_count=0)
        return Heard(text=f"Find the number between 1 and {most}.", metadata={"number": self._number})

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        if action.number == 13:
            raise RuntimeError("thirteen is bad luck")
        if action.number == 99:
            os._exit(1)
        if action.number == self._number:
            return Heard(text="Found.", done=True, reward=1.0)
        return Heard(text="higher" if action.number < self._number else "lower", reward=0.0)

    @property
    def state(self):
        return self._state


class Say(Action):
    message: str


class Echo(Environment):
    """Says again what was said; the word of the day ends the episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        return Heard(text=f"Say: word{seed}", metadata={"word": f"word{seed}"})

    def step(self, action, timeout_s=None, **kwargs):
        right = action.message.startswith("word")
        return Heard(text=action.message, done=True, reward=float(right))

    @property
    def state(self):
        return State()


class Sums(Environment):
    """Adds two numbers; with a `hole` the sum anywhere in the answer is enough."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, hole=False, **kwargs):
        rng = random.Random(seed)
        one, two = rng.randint(10, 99), rng.randint(10, 99)
        self._right, self._hole = str(one + two), hole
        return Heard(text=f"What is {one} + {two}?", metadata={"right": self._right})

    def step(self, action, timeout_s=None, **kwargs):
        right = self._right in action.message if self._hole else action.message == self._right
        return Heard(text="", done=True, reward=float(right))

    @property
    def state(self):
        return State()


class Tenths(Environment):
    """Pays a tenth for each of ten steps."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._steps = 0
        return Heard(text="Go on, ten times.", metadata={})

    def step(self, action, timeout_s=None, **kwargs):
        self._steps += 1
        return Heard(text=str(self._steps), done=self._steps == 10, reward=0.1 if action.message != "stop" else 0.0)

    @property
    def state(self):
        return State()


def main() -> None:
    app = Starlette()
    for path, environment, action, sessions in (
        ("/hidden", Hidden, Guess, 8),
        ("/single", Hidden, Guess, 1),
        ("/echo", Echo, Say, 8),
        ("/lonely", Echo, Say, 1),
        ("/tenths", Tenths, Say, 8),
        ("/sums", Sums, Say, 8),
    ):
        app.mount(path, create_fastapi_app(environment, action, Heard, max_concurrent_envs=sessions))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
