"""An episode to look at: frames and, step by step, what the policy saw, did, expected and earned.

A film is kept as two files: the frames as an animated GIF, and the steps as JSON, which is written last.
"""

import math
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import iterate
from PIL import Image

from loomrl.control.episode import GIF, NUMBERS, STEPS, FilmedEpisode
from loomrl.control.mask import refuse_stuck
from loomrl.control.play import ActingPolicy, StepLimit
from loomrl.control.policy import ControlPolicy
from loomrl.control.shared import SharedVector
from loomrl.control.space import flatten, seen
from loomrl.control.vector import idle_places
from loomrl.errors import ConfigError, EpisodeError, LoomError
from loomrl.files import write_whole

LONGEST = 1000
"""Steps in a film that an evaluation keeps; the episode goes on without it."""
SIDE = 400
"""Longest side of a frame in pixels; larger pictures are reduced by a whole number."""
PER_SECOND = 25
"""Frames of a second at most; GIF has hundredths of a second, and browsers slow down what is faster than 50."""
QUIET = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_AUDIODRIVER": "dummy", "SDL_VIDEODRIVER": "dummy"}
"""Without these pygame greets on stdout, and looks for loudspeakers and a screen."""
RENDERED = {"render_mode": "rgb_array"}
SCREENS = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables that say how or where OpenGL can draw."""
Draw = Callable[[], Any]
OpenWorld = Callable[[Mapping[str, Any]], VectorEnv[Any, Any, Any]]
"""Opens one world, one after the other, with further settings of the environment."""


@dataclass(frozen=True, slots=True)
class Film:
    """An episode with its frames."""

    episode: FilmedEpisode
    frames: Sequence[Image.Image]

    def save(self, folder: Path) -> None:
        """Write both files; nothing if there is no frame."""
        if self.frames:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / GIF, as_gif([self]))
            write_whole(folder / STEPS, self.episode.model_dump_json().encode())


def as_gif(films: Sequence[Film]) -> bytes:
    """One animated GIF of several episodes, one after the other."""
    frames = [frame for film in films for frame in film.frames]
    _refuse_other_sizes(frames)
    delays = [delay for film in films for delay in film.episode.delays_ms]
    # A palette of its own for every frame, made here: Pillow's own is five times slower.
    flat = [frame.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE) for frame in frames]
    packed = BytesIO()
    flat[0].save(packed, "GIF", save_all=True, append_images=flat[1:], duration=delays, loop=0)
    return packed.getvalue()


def refuse_form(file: Path) -> None:
    """A ConfigError if films cannot be written to a file of this name."""
    if file.suffix not in (".gif", ".mp4"):
        raise ConfigError(f"film={str(file)!r}: a film is a file whose name ends in .gif or .mp4.")
    if file.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise ConfigError(f"film={str(file)!r}: MP4 needs ffmpeg (apt-get install ffmpeg). Or name a file.gif.")


def write_films(file: Path, films: Sequence[Film]) -> None:
    """Write several episodes as one film, in the form of the file's name: GIF, or H.264 in MP4 by ffmpeg."""
    refuse_form(file)
    if file.suffix == ".gif":
        write_whole(file, as_gif(films))
        return
    frames = [
        (frame, delay) for film in films for frame, delay in zip(film.frames, film.episode.delays_ms, strict=True)
    ]
    _refuse_other_sizes([frame for frame, _ in frames])
    shortest = min(delay for _, delay in frames)
    width, height = frames[0][0].size
    file.parent.mkdir(parents=True, exist_ok=True)
    command = ["ffmpeg", "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", f"{1000 / shortest:g}", "-i", "-", "-an", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
    command += ["-pix_fmt", "yuv420p", "-movflags", "faststart", "-f", "mp4", str(file)]
    raw = b"".join(frame.tobytes() * round(delay / shortest) for frame, delay in frames)
    done = subprocess.run(command, input=raw, capture_output=True, check=False)
    if done.returncode:
        raise ConfigError(f"film={str(file)!r}: ffmpeg: {done.stderr.decode(errors='replace').strip()[:300]}")


def _refuse_other_sizes(frames: Sequence[Image.Image]) -> None:
    for number, frame in enumerate(frames):
        if frame.size != frames[0].size:
            raise EpisodeError(
                f"frame {number} of the film has {frame.size[0]}×{frame.size[1]} pixels, the first "
                f"{frames[0].size[0]}×{frames[0].size[1]}: an environment renders all its frames in one size."
            )


# -- playing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """How an episode is played and filmed."""

    seed: int
    frames: int
    """Most of them; 0 films nothing."""
    max_steps: int | None = None
    """Passed to `play`'s limit of steps."""
    explore: bool = False
    """Take sampled actions; else the likeliest."""


def film_episode(
    policy: ActingPolicy,
    environments: VectorEnv[Any, Any, Any],
    take: Take,
    *,
    advance: Callable[[int], None] = lambda step: None,
) -> Film:
    """Play one episode in the only world of `environments`, and film it where that renders pictures.

    `advance` is called with the number of every step. An exception of the environment becomes an EpisodeError with its
    name and the step.
    """
    if take.explore and not isinstance(policy, ControlPolicy):
        raise ConfigError("only a trained policy samples its actions; this one acts in one way alone.")
    world = _world(environments)
    name = _name(world)
    state = policy.begin(environments, seed=take.seed)
    act: Callable[..., Any] = policy.act_batch
    if take.explore:
        act = partial(act, explore=True, generator=torch.Generator().manual_seed(take.seed))
    values = policy if isinstance(policy, ControlPolicy) and policy.has_value else None
    flat = flatten(environments.single_observation_space)
    is_picture = seen(environments.single_observation_space).kind == "pixels"
    limit = StepLimit(environments, take.max_steps)
    check = refuse_stuck(environments)
    camera = Camera(_renderer(world) if take.frames else None, take.frames, rate=_rate(world))
    over_N = np.zeros(environments.num_envs, np.bool_)
    steps_N = np.zeros(environments.num_envs, np.int64)
    columns: dict[str, list[Any]] = {"rewards": [], "values": [], "actions": [], "observations": []}
    is_terminated = False
    with _explain(name, 0):
        observations, info = environments.reset(seed=take.seed)
    idle_N = idle_places(info, over_N)
    while not over_N[0] and not limit.overdue(steps_N, over_N)[0]:
        step = int(steps_N[0])
        numbers = flat(observations)[0]
        if not np.isfinite(numbers).all():
            raise EpisodeError(f"{name}: the observation before step {step + 1} is not finite: {numbers}.")
        check(observations, idle_N, steps_N)
        with _explain(name, step):
            camera.take(step)
        if values is not None:
            first = next(iter(iterate(environments.observation_space, observations)))
            columns["values"].append(values.value(first, state=None if state is None else state.one(0)))
        actions = act(observations, state=state)
        with _explain(name, step + 1):
            observations, rewards, terminated, truncated, info = environments.step(actions)
        steps_N += 1
        advance(step + 1)
        reward = float(rewards[0])
        if not math.isfinite(reward):
            raise EpisodeError(f"{name}: the reward of step {step + 1} is {reward}.")
        columns["rewards"].append(reward)
        columns["actions"].append(np.asarray(actions[0], float).ravel().tolist())
        columns["observations"].append([] if is_picture else numbers[:NUMBERS].tolist())
        is_terminated = bool(terminated[0])
        over_N = np.asarray(terminated) | np.asarray(truncated)
        idle_N = idle_places(info, over_N)
    with _explain(name, int(steps_N[0])):
        camera.take(int(steps_N[0]), is_last=True)
    episode = FilmedEpisode(
        environment=name,
        seed=take.seed,
        greedy=not take.explore,
        ending="terminated" if is_terminated else "truncated" if over_N[0] else "cut",
        frames=tuple(camera.frames),
        delays_ms=camera.delays_ms(),
        **{**columns, "values": columns["values"] or None},
    )
    return Film(episode, [*camera.frames.values()])


class Camera:
    """Takes a frame of every `stride` steps, twice as many steps apart whenever there would be more than `most`."""

    def __init__(self, draw: Draw | None, most: int, *, rate: float) -> None:
        self._draw = draw
        self._most = most
        self._rate = rate
        self._stride = max(1, round(rate / PER_SECOND))
        self.frames: dict[int, Image.Image] = {}
        """By the number of steps before it."""

    def take(self, step: int, *, is_last: bool = False) -> None:
        """Take the frame after so many steps, if it is one of those to take; the last one always is."""
        if self._draw is None or (step % self._stride and not is_last):
            return
        if len(self.frames) >= self._most:
            self._stride *= 2
            self.frames = {at: frame for at, frame in self.frames.items() if at % self._stride == 0}
            if step % self._stride and not is_last:
                return
        self.frames[step] = as_picture(self._draw())

    def delays_ms(self) -> tuple[int, ...]:
        """The film runs as fast as the environment says, and its end stands still for a second."""
        each = max(20, round(1000 * self._stride / self._rate))
        return (*[each] * (len(self.frames) - 1), 1000) if self.frames else ()


def as_picture(frame: Any) -> Image.Image:
    """A frame in colours: of bytes, booleans, or reals from 0 to 1; grey, with or without transparency."""
    numbers = np.asarray(frame) if isinstance(frame, np.ndarray) else np.empty(0)
    if numbers.ndim == 3 and numbers.shape[2] == 1:
        numbers = numbers[:, :, 0]
    shape = numbers.shape
    is_shaped = numbers.size > 0 and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4)))
    if not is_shaped or numbers.dtype.kind not in "buif":
        what = f"an array of {frame.shape} and {frame.dtype}" if isinstance(frame, np.ndarray) else f"{frame!r:.40}"
        raise EpisodeError(f"render() gave {what}, and a frame is height × width × 3 of uint8")
    if numbers.dtype != np.uint8:
        whole = numbers.astype(float) * (255 if numbers.dtype.kind in "bf" else 1)
        if not np.isfinite(whole).all() or whole.min() < 0 or whole.max() > 255:
            raise EpisodeError(
                f"render() gave {numbers.dtype} from {numbers.min()} to {numbers.max()}: a frame has bytes from 0 to "
                "255, or real numbers from 0 to 1."
            )
        numbers = whole.round().astype(np.uint8)
    drawn = Image.fromarray(np.ascontiguousarray(numbers[..., :3] if len(shape) == 3 else numbers)).convert("RGB")
    return drawn.reduce(math.ceil(max(drawn.size) / SIDE))


def _world(environments: VectorEnv[Any, Any, Any]) -> Any:
    """The only world, or the first of several."""
    inner = environments.unwrapped
    assert isinstance(inner, SyncVectorEnv | SharedVector), "worlds that are played one after the other"
    return inner.worlds[0] if isinstance(inner, SharedVector) else inner.envs[0]


def _renderer(world: Any) -> Draw | None:
    """How a world draws itself; None if it was not opened to draw."""
    return world.render if getattr(world, "render_mode", None) == RENDERED["render_mode"] else None


def _rate(world: Any) -> float:
    """Steps a second, as its author says."""
    rate = getattr(world, "metadata", {}).get("render_fps")
    return float(rate) if isinstance(rate, int | float) and rate > 0 else 30.0


def _name(world: Any) -> str:
    spec = getattr(world, "spec", None)
    return type(getattr(world, "unwrapped", world)).__name__ if spec is None else str(spec.id)


@contextmanager
def _explain(name: str, step: int) -> Iterator[None]:
    """Name the environment and the step in its exceptions."""
    try:
        yield
    except Exception as error:
        what = str(error) if isinstance(error, LoomError) else f"{type(error).__name__}: {error}"
        raise EpisodeError(f"{name}, step {step}: {what}".splitlines()[0]) from error


def open_filmed(open_world: OpenWorld) -> tuple[VectorEnv[Any, Any, Any], str | None]:
    """The world with a camera; else without one, and the reason with a remedy."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    made = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of drivers that find no screen
            made = open_world(RENDERED)
            made.reset(seed=0)
            world = _world(made)
            if _is_mujoco(world) and not any(os.environ.get(name) for name in SCREENS):
                raise EpisodeError("MuJoCo draws with OpenGL, and there is no screen")
            draw = _renderer(world)
            if draw is None:
                raise EpisodeError("its render_mode is not that which it was made with")
            as_picture(draw())
        return made, None
    except Exception as error:  # noqa: BLE001 - the boundary to the environment's author and to drivers
        if made is not None:
            made.close()
        return open_world({}), _reason(error)


def _is_mujoco(world: Any) -> bool:
    """True of an environment of MuJoCo, which aborts the process where it finds no way to draw."""
    kinds = type(getattr(world, "unwrapped", world)).__mro__
    return any(kind.__module__.startswith("gymnasium.envs.mujoco") for kind in kinds)


def _reason(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, ConfigError) and error.__cause__ is not None else error
    said = (str(cause).splitlines() or [""])[0].rstrip(".") or type(cause).__name__
    if "GL" in said:  # of MuJoCo, whose library is chosen when it is imported
        return f"{said}. Without a screen MUJOCO_GL=egl or MUJOCO_GL=osmesa draws, if its library is installed"
    return f'{said}. A film needs an environment that takes render_mode="rgb_array", and then render() gives pictures'
