"""Episodes to look at: frames and steps agree, troubles are named, and nothing that is filmed ends an evaluation."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image
from rich.console import Console

from loomrl.config import ControlExperiment
from loomrl.config.control import Network
from loomrl.control.episode import GIF, STEPS, FilmedEpisode
from loomrl.control.film import RENDERED, SCREENS, SIDE, Film, as_picture, film_episode, write_films
from loomrl.control.network import ActorCritic
from loomrl.control.play import RandomPolicy, Scripted
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, seen
from loomrl.errors import ConfigError, EpisodeError
from loomrl.experiments.evaluate_control import as_result, evaluate_control, open_scene, take_of
from loomrl.experiments.watch import render, watch

HERE = "tests.control.test_film"
SEEN = spaces.Box(-1e6, 1e6, (2,), np.float32)
DONE = spaces.Discrete(2)


class Drawn(gymnasium.Env[Any, Any]):
    """Counts its steps and draws a column for each; a step pays its number if the action is 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 - Gymnasium's declaration
    observation_space = SEEN
    action_space = DONE

    def __init__(
        self, render_mode: str | None = None, steps: int = 12, trouble: str = "", at: int = 3, wide: int = 60
    ) -> None:
        self.render_mode = render_mode
        self._steps = steps
        self._trouble = trouble
        self._at = at
        self._wide = wide

    def _has(self, trouble: str) -> bool:
        return self._trouble == trouble and self._step == self._at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        if self._has("raises"):
            raise RuntimeError("the arm fell off\nand broke")
        paid = float("nan") if self._has("pays nan") else float(self._step * int(action))
        return self._show(), paid, self._step >= self._steps, False, {}

    def _show(self) -> Any:
        if self._has("other shape"):
            return np.zeros(3, np.float32)
        return np.array([float("nan") if self._has("shows nan") else self._step, 1], np.float32)

    def render(self) -> Any:
        if self._has("cannot draw any more"):
            return None
        drawn = np.zeros((40, self._wide * (2 if self._has("other size") else 1), 3), np.uint8)
        drawn[:, self._step % self._wide] = 255
        return drawn


class Blind(Drawn):
    """The same without pictures."""

    def __init__(self, steps: int = 12) -> None:
        super().__init__(steps=steps)


def ones(**settings: Any) -> Any:
    """A policy that always takes the second choice."""
    return lambda observations: np.ones(len(observations), np.int64)


def experiment(folder: Path | None = None, world: str = "Drawn", **settings: Any) -> ControlExperiment:
    at = "" if folder is None else f"{folder}/"
    return ControlExperiment(
        name="drawn",
        environment={"kind": "custom", "entry_point": f"{HERE}:{world}", "settings": settings},
        evaluation={"episodes": 2},
        store_url=f"sqlite:///{at}loom.db",
        artifact_url=f"{at}artifacts",
        train={"folder": f"{at}runs"},
    )


def filmed(asked: ControlExperiment, policy: Any = None, *, frames: int = 128, explore: bool = False) -> Film:
    with open_scene(asked) as (environments, reason):
        assert reason is None, reason
        return film_episode(policy or Scripted(ones()), environments, take_of(asked, frames=frames, explore=explore))


def learnt(**network: Any) -> ControlPolicy:
    shape = Network(hidden=(8,), **network)
    return ControlPolicy(ActorCritic(seen(SEEN), acts(DONE), shape, normalize=False), SEEN, DONE, shape)


def column(frame: Image.Image) -> int:
    return int(np.asarray(frame)[0, :, 0].argmax())


def test_frames_and_steps_are_those_of_the_episode(tmp_path: Path) -> None:
    film = filmed(experiment())
    assert film.episode.rewards == tuple(map(float, range(1, 13)))
    assert (film.episode.total, film.episode.ending, film.episode.values) == (78.0, "terminated", None)
    assert film.episode.actions == ((1.0,),) * 12
    assert [seen[0] for seen in film.episode.observations] == list(range(12))
    # 50 steps a second as 25 frames: every second one, and the end
    assert film.episode.frames == (0, 2, 4, 6, 8, 10, 12)
    assert [column(frame) for frame in film.frames] == list(film.episode.frames)
    assert film.episode.delays_ms == (40,) * 6 + (1000,)
    film.save(tmp_path)
    with Image.open(tmp_path / GIF) as gif:
        assert (gif.n_frames, gif.size) == (7, (60, 40))
        for number, step in enumerate(film.episode.frames):
            gif.seek(number)
            assert (column(gif.convert("RGB")), gif.info["duration"]) == (step, film.episode.delays_ms[number])
    assert FilmedEpisode.parse(json.loads((tmp_path / STEPS).read_bytes())) == film.episode


@pytest.mark.parametrize("steps", [99, 100, 101, 700])
def test_a_long_episode_has_no_more_frames_than_asked_for_and_runs_as_long(steps: int) -> None:
    episode = filmed(experiment(steps=steps), frames=25).episode
    assert 12 < len(episode.frames) <= 26
    assert episode.frames[-1] == steps
    assert sum(episode.delays_ms[:-1]) == pytest.approx(1000 * steps / 50, rel=0.1)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("raises", r"^Drawn, step 3: RuntimeError: the arm fell off$"),
        ("pays nan", r"^Drawn: the reward of step 3 is nan"),
        ("shows nan", r"^Drawn: the observation before step 4 is not finite"),
        ("other shape", r"^Drawn, step 3: ValueError: .*shape"),
        ("cannot draw any more", r"^Drawn, step 4: render\(\) gave None, and a frame is height × width × 3 of uint8"),
        ("other size", r"^frame 2 of the film has 120×40 pixels, the first 60×40"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_goes_wrong_while_it_is_watched_is_named(trouble: str, said: str, tmp_path: Path) -> None:
    asked = experiment(tmp_path, trouble=trouble, at=4 if "draw" in trouble or "size" in trouble else 3)
    with pytest.raises(EpisodeError, match=said):
        watch(asked, f"{HERE}:ones", episodes=1)


def test_an_environment_that_hangs_while_it_is_watched_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Event()
    monkeypatch.setattr("loomrl.experiments.watch.STUCK_S", 0.05)
    monkeypatch.setattr("faulthandler.dump_traceback", lambda **_: said.set())

    def render(self: Any) -> Any:
        said.wait(60)
        return np.zeros((4, 4, 3), np.uint8)

    monkeypatch.setattr(f"{HERE}.Drawn.render", render)
    monkeypatch.setattr("loomrl.experiments.evaluate_control.open_filmed", lambda world: (world(RENDERED), None))
    assert watch(experiment(tmp_path), f"{HERE}:ones", episodes=1).film is not None
    assert "no progress for 0.05 s (LOOMRL_HANG_S): waiting for the environment's render." in capsys.readouterr().err


def test_a_trouble_while_it_is_filmed_ends_no_evaluation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = evaluate_control(experiment(tmp_path, trouble="cannot draw any more", at=4), [f"{HERE}:ones"])
    assert (result.reports[0].overall.reward.mean, result.film) == (78.0, None)
    assert "no film of an evaluation: EpisodeError: Drawn, step 4: render() gave None" in caplog.text


def test_an_episode_that_never_ends_is_cut() -> None:
    episode = filmed(experiment(steps=10**9).override({"evaluation.max_steps": 30})).episode
    assert (len(episode.rewards), episode.ending) == (30, "cut")


def test_an_environment_without_pictures_shows_its_steps_and_refuses_a_film(tmp_path: Path) -> None:
    asked = experiment(tmp_path, world="Blind")
    watched = watch(asked, f"{HERE}:ones", episodes=1)
    assert (watched.film, watched.episodes[0].total, watched.episodes[0].frames) == (None, 78.0, ())
    console = Console(record=True, width=160)
    render(watched, console)
    said = console.export_text()
    assert "terminated after 12 steps, return 78.00" in said
    assert "keyword argument 'render_mode'. A film needs an environment that takes render_mode=\"rgb_array\"" in said
    with pytest.raises(ConfigError, match=r"^film='.*x.gif': .*render_mode.*without --film its steps are shown"):
        watch(asked, f"{HERE}:ones", episodes=1, file=tmp_path / "x.gif")
    assert evaluate_control(asked, [f"{HERE}:ones"]).film is None


def test_mujoco_is_not_asked_to_draw_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would abort the process, and a training with it."""
    for name in SCREENS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("gymnasium.envs.mujoco.mujoco_env.MujocoEnv.render", lambda self: pytest.fail("it was asked"))
    with open_scene(ControlExperiment.parse({"name": "x", "environment": {"id": "Hopper-v5"}})) as (_, reason):
        assert reason is not None
        assert "MUJOCO_GL=egl" in reason


def test_episodes_are_watched_one_after_the_other_in_one_film(tmp_path: Path) -> None:
    asked = experiment(tmp_path)
    watched = watch(asked, f"{HERE}:ones", episodes=2, file=tmp_path / "deep" / "two.gif")
    assert [episode.seed - watched.episodes[0].seed for episode in watched.episodes] == [0, 1]
    with Image.open(tmp_path / "deep" / "two.gif") as gif:
        assert gif.n_frames == 14
    with pytest.raises(ConfigError, match=r"x.avi': a film is a file whose name ends in .gif or .mp4"):
        watch(asked, "random", episodes=1, file=tmp_path / "x.avi")
    with pytest.raises(ConfigError, match="only a trained policy samples its actions"):
        watch(asked, "random", episodes=1, explore=True)


def test_an_evaluation_keeps_a_film_of_its_first_policy_unless_it_is_told_not_to(tmp_path: Path) -> None:
    asked = experiment(tmp_path, steps=1200)
    result = evaluate_control(asked, [f"{HERE}:ones", "random"])
    assert result.film == as_result(result)["film"] == f"{tmp_path}/runs/{result.run}/{GIF}"
    kept = FilmedEpisode.parse(json.loads(Path(result.film).with_name(STEPS).read_bytes()))
    assert (len(kept.rewards), kept.ending, set(kept.actions)) == (1000, "cut", {(1.0,)})
    assert Path(result.film).stat().st_size < 200_000
    assert evaluate_control(asked.override({"evaluation.film": 0}), ["random"]).film is None


@pytest.mark.parametrize("memory", [None, {"kind": "gru", "size": 4}])
def test_values_and_sampled_actions_are_the_policys_own_and_are_repeatable(memory: Any) -> None:
    policy = learnt(memory=memory)
    film = filmed(experiment(), policy)
    state = policy.state()
    for observation, action, value in zip(
        film.episode.observations, film.episode.actions, film.episode.values or (), strict=True
    ):
        told = np.array(observation, np.float32)
        assert value == pytest.approx(policy.value(told, state=state), rel=1e-5)
        assert int(policy.act(told, state=state)) == action[0]
    sampled = [filmed(experiment(), policy, explore=True).episode for _ in range(2)]
    assert sampled[0] == sampled[1]
    assert not sampled[0].greedy
    assert len(set(sampled[0].actions)) == 2


def test_of_agents_that_share_a_policy_the_first_is_shown() -> None:
    asked = ControlExperiment(
        name="team",
        environment={"kind": "custom", "entry_point": "tests.algorithms.control_envs:EndlessTeam"},
        evaluation={"max_steps": 7},
    )
    with open_scene(asked) as (environments, reason):
        assert reason is not None
        film = film_episode(RandomPolicy(), environments, take_of(asked, frames=9))
    assert (film.episode.rewards, film.episode.ending, film.frames) == ((1.0,) * 7, "cut", [])


def test_a_game_is_filmed_from_move_to_move() -> None:
    game = {"game": "pettingzoo.classic.tictactoe_v3:env", "opponent": {"kind": "random"}}
    table = {"kind": "custom", "entry_point": "loomrl.control.turns:TurnVector", "settings": game}
    asked = ControlExperiment(name="table", environment=table)
    shown = filmed(asked, RandomPolicy())
    assert shown.episode.environment == "TurnVector"
    assert len(shown.frames) == len(shown.episode.rewards) + 1
    before, *later = [np.asarray(frame) for frame in shown.frames]
    for frame in later:
        assert (frame != before).any()
        before = frame


def test_of_several_objectives_the_weighted_reward_is_shown() -> None:
    arms = "tests.algorithms.objective_envs:Arms"
    asked = ControlExperiment(
        name="arms",
        environment={"kind": "custom", "entry_point": arms},
        algorithm={
            "kind": "weave",
            "objectives": ["left", "right"],
            "preference": {"kind": "fixed", "weights": [0.25, 0.75]},
        },
    )
    middle = Scripted(lambda shown: np.ones(len(shown["preference"]), np.int64))
    with open_scene(asked) as (environments, _):
        film = film_episode(middle, environments, take_of(asked, frames=0))
    assert film.episode.rewards == (pytest.approx(0.4 * 0.25 + 0.4 * 0.75),)
    assert film.episode.observations[0][:2] == (0.25, 0.75)


GREY = np.linspace(0, 255, 12, dtype=np.uint8).reshape(3, 4)


@pytest.mark.parametrize(
    "frame",
    [
        GREY,
        GREY[..., None],
        np.dstack([GREY] * 3),
        np.dstack([GREY] * 3 + [np.zeros_like(GREY)]),
        GREY / 255,
        GREY.astype(np.int64),
    ],
)
def test_frames_of_other_forms_are_the_same_picture(frame: Any) -> None:
    np.testing.assert_array_equal(np.asarray(as_picture(frame)), np.dstack([GREY] * 3))


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (None, "gave None"),
        ([GREY], "gave "),
        (np.zeros((3, 4, 4, 3), np.uint8), r"an array of \(3, 4, 4, 3\) and uint8"),
        (np.zeros((0, 4, 3), np.uint8), r"an array of \(0, 4, 3\)"),
        (np.zeros((4, 4), "U1"), "and <U1"),
        (np.full((4, 4), 7.0), "gave float64 from 7.0 to 7.0: a frame has bytes from 0 to 255, or real numbers"),
        (np.full((4, 4), -1), "gave int64 from -1 to -1"),
        (np.full((4, 4), np.nan), "gave float64 from nan"),
    ],
)
def test_what_is_no_frame_is_named(frame: Any, said: str) -> None:
    with pytest.raises(EpisodeError, match=said):
        as_picture(frame)


def test_a_large_frame_is_reduced() -> None:
    assert as_picture(np.zeros((900, 1601, 3), np.uint8)).size == (321, 180)
    assert max(as_picture(np.zeros((SIDE, 10), bool)).size) == SIDE


def test_an_mp4_needs_ffmpeg_and_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film = filmed(experiment(wide=61))
    found: Callable[[str], str | None] = shutil.which
    if found("ffmpeg"):
        write_films(tmp_path / "film.mp4", [film])
        assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"
        probe = subprocess.run(["ffmpeg", "-i", tmp_path / "film.mp4"], capture_output=True, text=True, check=False)
        assert "h264" in probe.stderr
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(
        ConfigError, match=r"film.mp4': MP4 needs ffmpeg \(apt-get install ffmpeg\). Or name a file.gif"
    ):
        write_films(tmp_path / "film.mp4", [film])
