"""`loomrl runs …` and `loomrl policies …`: trainings and evaluations, and the versions that they made."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from loomrl.experiments.commands.face import face, nouns, open_face_store, without
from loomrl.experiments.commands.listing import add_list, find, print_found, render_found
from loomrl.experiments.commands.output import emit, table
from loomrl.inference.gguf import GgufKind
from loomrl.record.catalogue import TRAJECTORY_RECORDS, hashes_text
from loomrl.record.declaration import Column, Part
from loomrl.record.detail import POLICY, RUN, data_text

if TYPE_CHECKING:
    from loomrl.console.source import FoundTrajectory
    from loomrl.store import LoomDB

runs = nouns("List, show and stop runs: trainings, evaluations, sweeps.")
trajectories = nouns("List and show trajectories: what was played, and what was served.")
policies = nouns("List and show policy versions, copy them out, delete old ones.")


def _show_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run.")],
    *,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also save its page in the console as one HTML file.")
    ] = None,
) -> None:
    """Show a run: its state, its result, where it came from."""
    found = find(RUN, run)
    if page is not None:
        from loomrl.console.saved import save_run

        with open_face_store() as db:
            page.write_text(save_run(db, run), encoding="utf-8")
    print_found(RUN, found)


add_list(runs, RUN, show=_show_run)


def _show_policy(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A version, such as RUN/12; of RUN the last.")],
) -> None:
    """Show a version's origins, back to the first, its descendants and, if it was trained in a league, the ratings."""
    from loomrl.run.version import file_of
    from loomrl.store.policies import lineage

    with open_face_store() as db:
        found = POLICY.find(db, policy)
        version = found["policy"].version
        origins = lineage(db, version.id)
        state = file_of(version, db, "line.json") or file_of(version, db, "course.json")
    league = json.loads(state).get("league") if state else None
    if league:
        from loomrl.algorithms.league import standings

        origins = {**origins, "league": standings(league)}
    whole = {**found, "origins": [origins, *origins["ancestors"]], "children": origins["children"]}

    def render(console: Console) -> None:
        render_found(WITH_ORIGINS, whole, console)
        if league:
            _render_league(version.id, origins["league"], console)

    emit(origins, show=render)


WITH_ORIGINS = replace(
    POLICY,
    facts=(*POLICY.facts, Column("children", lambda found: ", ".join(found["children"]))),
    parts=(
        Part(
            name="origins",
            title="Origins",
            columns=(
                Column("version", "id"),
                Column("stage", form="status"),
                Column("made from", lambda row: row["parent"] or row["made_from"]["run"]["parent_policy"]),
                Column("made", "created_at", "time"),
                Column("environments", lambda row: hashes_text(row["made_from"]["environments"])),
                Column("experiment", "made_from.experiment", "hash"),
                Column("code", "made_from.code", "hash"),
                Column("trained on", lambda row: data_text(row["made_from"]["data"]), "words"),
            ),
        ),
        *POLICY.parts,
    ),
)
add_list(policies, POLICY, show=_show_policy)


def _show_trajectory(
    id: Annotated[str, typer.Argument(metavar="TRAJECTORY", help="Its id; a served one has its session's.")],
) -> None:
    """Show a trajectory: its task, its reward, and all that was said."""
    from loomrl.gym.grade import GRADES, reasons_of
    from loomrl.serving.retention.archive import conversation

    place = _find_trajectory(id)
    trajectory = place.trajectory
    threads = json.loads(conversation(trajectory))
    about = {
        "id": trajectory.id,
        "hub": place.hub,
        "run": trajectory.run,
        "task": asdict(trajectory.task),
        "ending": trajectory.end.value,
        "reward": asdict(trajectory.reward),
        "grades": trajectory.extra.get(GRADES, {}),
        "stored_at": place.created_at,
    }

    def render(console: Console) -> None:
        shown = {**about, "grades": "\n".join(f"{name}: {said}" for name, said in reasons_of(trajectory).items())}
        rows = [(name, ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, dict) else value)
                for name, value in shown.items() if value]  # fmt: skip
        console.print(table("", ("", ""), rows))
        for message in (message for thread in threads for message in thread):
            console.print(f"\n{message['role']}: {message['content']}", markup=False, highlight=False)

    emit({**about, "threads": threads}, show=render)


def _find_trajectory(id: str) -> "FoundTrajectory":
    from loomrl.console.source import open_source
    from loomrl.errors import StoreError

    with closing(open_source(face().store)) as source:
        place = source.find(id)
    if place is None:
        raise StoreError(f"trajectory {id!r:.100} is in no hub of {face().store}. `loomrl trajectories` lists them.")
    return place


@contextmanager
def _open_index() -> "Iterator[LoomDB]":
    """The index of trajectories, brought up to date."""
    from loomrl.console.source import Indexer, open_source

    with closing(open_source(face().store)) as source:
        indexer = Indexer(source)
        while indexer.round():
            pass
        yield source.index


add_list(trajectories, TRAJECTORY_RECORDS, show=_show_trajectory, open_db=_open_index)


@trajectories.command()
def ask(  # noqa: PLR0913 - a command with its options
    id: Annotated[str, typer.Argument(metavar="TRAJECTORY", help="Its id; a served one has its session's.")],
    version: Annotated[str, typer.Argument(metavar="POLICY", help="RUN, RUN/STEP or a model's folder.")],
    turn: Annotated[int | None, typer.Option(min=1, help="From this turn's answer on (default: the last).")] = None,
    token: Annotated[int | None, typer.Option(min=0, help="From this token of the thread on, instead.")] = None,
    thread: Annotated[int, typer.Option(min=0, help="Thread, counted from 0.")] = 0,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampling.")] = 0,
) -> None:
    """Ask another version what it would have said from a turn or token on, after the very ids on record."""
    from loomrl.errors import ConfigError
    from loomrl.serving.continuation import continue_from, find_place

    if turn is not None and token is not None:
        raise ConfigError(f"--turn={turn} and --token={token}: name one of them.")
    trajectory = _find_trajectory(id).trajectory
    place = find_place(trajectory, thread=thread, turn=turn, token=token)
    with open_face_store() as db:
        said = continue_from(place, trajectory, version, db, temperature=temperature, seed=seed)

    def render(console: Console) -> None:
        console.print(f"turn {said.turn}, from token {said.token} on\n", highlight=False)
        for who, text in (("on record", said.recorded), (said.version, said.said)):
            console.print(f"{who}: {text}", markup=False, highlight=False)

    emit(asdict(said), show=render)


def _render_league(version: str, found: Mapping[str, Any], console: Console) -> None:
    """Ratings, then a row for each first player: its share of points, and the number of games."""
    ratings = found["ratings"]
    title = f"\nRatings as of {version}, in Elo with 95% intervals"
    columns = ("player", "rating>", "interval>", "games>", "in the pool")
    rated = [
        (one["player"], f"{one['rating']:.0f}", _between(one), one["games"], "yes" if one["member"] else "")
        for one in ratings
    ]
    console.print(table(title, columns, rated))
    console.print(
        f"\nThe first seat is worth {found['advantage']['rating']:.0f} {_between(found['advantage'])}.\n",
        highlight=False,
    )
    met = {(each["player"], each["opponent"]): each for each in found["results"]}
    names = [each["player"] for each in ratings]
    firsts, seconds = ([name for name in names if any(pair[seat] == name for pair in met)] for seat in (0, 1))
    rows = [(first, *(_points(met.get((first, second))) for second in seconds)) for first in firsts]
    console.print(table("Share of points, and games", ("", *(f"{name}>" for name in seconds)), rows))


def _between(rating: Mapping[str, float]) -> str:
    return f"[{rating['low']:.0f}, {rating['high']:.0f}]"


def _points(result: Mapping[str, Any] | None) -> str:
    return "" if result is None else f"{result['points'] / result['games']:.2f} ({result['games']})"


@policies.command()
def export(  # noqa: PLR0913 - a command with its options
    policy: Annotated[str, typer.Argument(help="RUN (its last version) or RUN/NUMBER.")],
    folder: Annotated[Path, typer.Argument(help="Target folder; must be empty if it exists.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="Of control: also policy.onnx, its greedy path.")] = False,
    stable_baselines: Annotated[
        bool,
        typer.Option("--stable-baselines", help="Of control: also stable_baselines.zip, for its PPO.load."),
    ] = False,
    gguf: Annotated[
        GgufKind | None,
        typer.Option(help="Of language: also a GGUF file for llama.cpp, and a Modelfile for Ollama."),
    ] = None,
    preference: Annotated[
        str | None,
        typer.Option(help="Of a language policy that reads one: have it always, as correctness=0.7,brevity=0.3."),
    ] = None,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Of language: a bundle for `loomrl verify`; FOLDER may be a FILE.tar.")
    ] = False,
) -> None:
    """Copy a policy version out of the artifacts, with a model card: a Hugging Face folder, or one that ControlPolicy
    loads.
    """
    if evidence:
        _export_evidence(policy, folder, others=bool(onnx or stable_baselines or gguf or preference))
        return
    from loomrl.experiments.card import write_card
    from loomrl.experiments.policies import exported
    from loomrl.gym.preference import parse_preference

    with open_face_store() as db:
        asked = None if preference is None else parse_preference(preference)
        version = exported(policy, db, folder, onnx=onnx, stable_baselines=stable_baselines, preference=asked)
        write_card(version, db, folder)
    if gguf is not None:
        from loomrl.inference.gguf_export import export_gguf

        export_gguf(folder, folder / f"{version.replace('/', '-')}.{gguf}.gguf", gguf)
    result = {"policy": version, "folder": str(folder)}
    emit(result, f"{version} is in {folder}")


def _export_evidence(policy: str, place: Path, *, others: bool) -> None:
    from loomrl.errors import ConfigError
    from loomrl.experiments.verify.bundle import open_bundle
    from loomrl.experiments.verify.export import write_evidence

    if others:
        raise ConfigError("--evidence: a bundle has no other form of the policy. Export those into another folder.")
    with open_face_store() as db:
        version = write_evidence(policy, db, place)
    root = open_bundle(place).root
    emit({"policy": version, "bundle": str(place), "sha256": root}, f"evidence of {version} is in {place}, {root}")


@policies.command("import")
@without("--store")
def take_over(
    file: Annotated[Path, typer.Argument(help="A zip file that Stable-Baselines3 wrote: PPO, A2C or SAC.")],
    folder: Annotated[Path, typer.Argument(help="Target folder; must be empty if it exists.")],
    environment: Annotated[str, typer.Option(help="The environment that it was made for, such as CartPole-v1.")],
    most_mb: Annotated[float, typer.Option(min=1, help="Megabytes of it that are read at most, unpacked.")] = 512.0,
) -> None:
    """Take over a policy of Stable-Baselines3: a folder to evaluate, serve and gate. Nothing pickled is read."""
    from contextlib import closing

    from loomrl.config import GymnasiumEnvironment
    from loomrl.control.environment import open_environment
    from loomrl.control.stable_baselines import read
    from loomrl.experiments.policies import refuse_full

    refuse_full(folder)
    with closing(open_environment(GymnasiumEnvironment(id=environment), {})) as place:
        read(file, place.observation_space, place.action_space, most_mb=most_mb).save(folder)
    result = {"file": str(file), "folder": str(folder), "environment": environment}
    emit(result, f"{file} is in {folder}")


@policies.command()
def prune(
    days: Annotated[float, typer.Option(min=0, help="Days since the training ended.")] = 90.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
) -> None:
    """Delete old checkpoints, but not the best and the last of a run, nor those that were served."""
    from loomrl.serving.retention.checkpoint import age_checkpoints

    with open_face_store() as db:
        pruned = age_checkpoints(db, days=days, now=time.time(), is_dry=dry_run)

    def render(console: Console) -> None:
        done = "would be deleted" if dry_run else "deleted"
        console.print(f"{len(pruned.deleted)} checkpoints of trainings that ended more than {days:g} days ago: {done}")
        for id in pruned.deleted:
            console.print(f"  {id}", highlight=False)
        for run, reason in pruned.failed.items():
            console.print(f"  {run} is left alone: {reason}", highlight=False, markup=False)

    emit({**asdict(pruned), "dry_run": dry_run}, show=render)
