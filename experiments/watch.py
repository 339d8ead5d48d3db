"""`loomrl watch`: a control policy plays episodes to look at, as a film and step by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from loomrl.config import ControlExperiment
from loomrl.control.environment import policies_of
from loomrl.control.episode import FilmedEpisode
from loomrl.control.film import film_episode, refuse_form, write_films
from loomrl.control.play import MOST_STEPS
from loomrl.errors import ConfigError
from loomrl.experiments.commands.output import table
from loomrl.experiments.evaluate_control import find_acts, open_scene, take_of
from loomrl.process import stacks_if_stuck
from loomrl.store import open_store
from loomrl.telemetry.number import figure
from loomrl.telemetry.progress import progress

FRAMES = 256
"""Most frames of an episode."""
STUCK_S = 60.0
"""Seconds of a step after which the command says what it waits for."""
ROWS = 20
"""Steps of an episode in a table."""
WAITS = {"step": "the environment's step", "reset": "the environment's reset", "render": "the environment's render"}


@dataclass(frozen=True, slots=True)
class Watched:
    """Episodes of a policy, and the file with their film; without one, the reason."""

    policy: str
    episodes: tuple[FilmedEpisode, ...]
    film: str | None
    reason: str | None

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        episodes = [{**each.model_dump(mode="json"), "return": each.total} for each in self.episodes]
        return {"policy": self.policy, "film": self.film, "no_film": self.reason, "episodes": episodes}


def watch(
    experiment: ControlExperiment, name: str, *, episodes: int, explore: bool = False, file: Path | None = None
) -> Watched:
    """Play the evaluation's first episodes. A film is refused where it was asked for and cannot be made."""
    if file is not None:
        refuse_form(file)
    if policies := policies_of(experiment.environment):
        raise ConfigError(f"watch {name}: a film is of one policy, and this run has several: {', '.join(policies)}.")
    with open_store(experiment.store_url) as db:
        _, policy, version = find_acts(name, experiment.judged_in.settings, db)
    with open_scene(experiment) as (environments, reason):
        if reason is not None and file is not None:
            raise ConfigError(f"film={str(file)!r}: {reason}; without --film its steps are shown.")
        films = []
        for number in range(episodes):
            take = take_of(experiment, number, frames=FRAMES, explore=explore)
            with (
                progress(f"watch {name}", take.max_steps or MOST_STEPS, only_if_long=True) as report,
                stacks_if_stuck(WAITS, STUCK_S) as alive,
            ):

                def advance(step: int) -> None:
                    alive()
                    report(step)

                films.append(film_episode(policy, environments, take, advance=advance))
    if reason is None:
        file = file or _place(experiment, version)
        write_films(file, films)
    return Watched(name, tuple(film.episode for film in films), None if reason else str(file), reason)


def _place(experiment: ControlExperiment, version: str | None) -> Path:
    """Beside what the run of the version left."""
    run, _, number = (version or "").rpartition("/")
    return Path(experiment.train.folder, run, f"film-{number}.gif") if run else Path("film.gif")


def render(watched: Watched, console: Console) -> None:
    """Each episode as a table of steps at equal distances, and where its film is."""
    for episode in watched.episodes:
        how = "greedy" if episode.greedy else "sampled"
        title = f"{watched.policy} in {episode.environment}, {how}, seed {episode.seed}"
        console.print(table(title, ("step>", "action", "value>", "reward>", "return>"), _rows(episode)))
        ending = "cut, as it had not ended," if episode.ending == "cut" else episode.ending
        console.print(f"{ending} after {len(episode.rewards):,} steps, return {episode.total:.2f}\n", highlight=False)
    if watched.film:
        console.print(f"film: {watched.film}", highlight=False)
    else:
        console.print(f"no film: {watched.reason}", highlight=False, markup=False)


def _rows(episode: FilmedEpisode) -> Sequence[tuple[str, ...]]:
    count = len(episode.rewards)
    chosen = sorted({round(number * (count - 1) / (ROWS - 1)) for number in range(ROWS)})
    return [
        (
            f"{step + 1:,}",
            ", ".join(figure(number) for number in episode.actions[step]),
            "–" if episode.values is None else figure(episode.values[step]),
            figure(episode.rewards[step]),
            figure(sum(episode.rewards[: step + 1])),
        )
        for step in chosen
    ]
