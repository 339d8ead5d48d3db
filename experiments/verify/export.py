"""The evidence of a version, collected from LoomDB, its runs' hubs and their checkpoints."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import loomrl
from loomrl.artifacts import open_artifacts
from loomrl.config import Experiment
from loomrl.errors import ConfigError, DataError, unknown
from loomrl.experiments.policies import refuse_full
from loomrl.experiments.verify.bundle import (
    EVIDENCE,
    RECORD,
    LineageEvidence,
    RunEvidence,
    files_in,
    pack,
    seal_bundle,
)
from loomrl.files import file_hash, scratch
from loomrl.hub import Selection, open_hub
from loomrl.hub.codec import encode
from loomrl.run.version import copied, find_version
from loomrl.safety.rule import Found, Saying
from loomrl.safety.text import Secrets
from loomrl.store import LoomDB, beside
from loomrl.store.environments import list_environments
from loomrl.store.events import EVENTS
from loomrl.store.policies import EVALUATIONS, Evaluation
from loomrl.store.runs import BEGUN, POLICIES, RUNS, Run, load_experiment
from loomrl.store.verdicts import VERDICTS
from loomrl.types import PolicyVersion, Trajectory

SECRETS = Secrets(("key", "password"))
"""Values that are never exported."""
TAR = ".tar"


def write_evidence(text: str, db: LoomDB, place: Path) -> str:
    """Write the evidence of a version into a new folder, or an archive if the name ends in `.tar`; the version's id."""
    version = find_version(text, db)
    if version is None:
        raise ConfigError("policy " + unknown("name", text, [run.id for run in RUNS.latest(db)]))
    is_archive = place.suffix == TAR
    if is_archive and place.exists():
        raise ConfigError(f"{str(place)!r} exists already: name another file.")
    if not is_archive:
        refuse_full(place)
    folder = scratch("evidence") / "bundle" if is_archive else place
    folder.mkdir(parents=True, exist_ok=True)
    chain = _chain(version, db)
    runs = [_write_run(run, numbers, db, folder) for run, numbers in chain]
    checkpoint = copied(version, db)
    for part in ("model", "adapter"):
        if (checkpoint / part).is_dir():
            shutil.copytree(checkpoint / part, folder / part)
    shutil.rmtree(checkpoint.parent)
    verdicts = VERDICTS.recent(db, policy=version.id)
    evidence = LineageEvidence(version=version.id, runs=runs, verdicts=[verdict for _, verdict in verdicts])
    for where, words in _strings(EVIDENCE.dump_python(evidence, mode="json")):
        _refuse_secret(words, f"the record, at {where},")
    (folder / RECORD).write_bytes(EVIDENCE.dump_json(evidence, indent=1))
    seal_bundle(folder, {"version": version.id, "loomrl": loomrl.__version__})
    if is_archive:
        pack(folder, place)
    return version.id


def _chain(version: PolicyVersion, db: LoomDB) -> list[tuple[Run, list[PolicyVersion]]]:
    """The runs behind a version, the first one first, each with its versions up to the one that was used."""
    found: dict[str, list[PolicyVersion]] = {}
    at: PolicyVersion | None = version
    while at is not None:
        found.setdefault(at.run, []).append(at)
        at = POLICIES.require(db, at.parent) if at.parent is not None else None
    return [(RUNS.require(db, run), versions[::-1]) for run, versions in reversed(found.items())]


def _write_run(run: Run, versions: list[PolicyVersion], db: LoomDB, folder: Path) -> RunEvidence:
    experiment = load_experiment(run)
    if not isinstance(experiment, Experiment):
        raise ConfigError(f"--evidence: {run.id} is a training of {run.kind} {experiment.kind}; it is for language.")
    place = folder / "runs" / run.id
    place.mkdir(parents=True)
    begun = EVENTS.fetch(db, EVENTS.select(subject=run.id).where(EVENTS.c.kind.in_(BEGUN)).order_by(EVENTS.c.position))
    known = {each.id: each.content for each in list_environments(db)}
    return RunEvidence(
        run=replace(run, result={}),
        begun=[{name: event.data.get(name) for name in ("code", "machine", "sources")} for event in begun],
        policies=versions,
        evaluations=[each for version in versions for each in _evaluations(version, db)],
        environments={id: known[id] for id in run.environments if id in known},
        origin=_write_origin(experiment, place),
        checkpoints=_write_checkpoints(experiment, versions, place),
        leased={} if experiment.data is not None else _write_updates(run, experiment, versions[-1].number, place),
        data=_write_data(experiment, place),
        judged=_write_judged(run, experiment, versions, place),
    )


def _evaluations(version: PolicyVersion, db: LoomDB) -> list[Evaluation]:
    return [found for _, found in EVALUATIONS.read(db, policy=version.id, run=version.run)]


def _write_origin(experiment: Experiment, place: Path) -> dict[str, str]:
    """The hash of each file of the first weights; the files too, unless they are a model from elsewhere."""
    from loomrl.experiments.algorithms import open_algorithm

    resolved = open_algorithm(experiment).resolved
    if resolved.model.path is None:
        open_artifacts(experiment.artifact_url).get_folder(resolved.built_name, place / "origin")
        return {}
    return {name: file_hash(resolved.origin / name) for name in sorted(files_in(resolved.origin))}


def _write_checkpoints(experiment: Experiment, versions: list[PolicyVersion], place: Path) -> list[int]:
    """The states of those versions of which there is a checkpoint still."""
    artifacts = open_artifacts(experiment.artifact_url)
    written = []
    for version in versions:
        name = "/".join(version.url.split("/")[-3:])
        if artifacts.exists(name):
            artifacts.get_folder(name, place / "checkpoints" / f"{version.number:06d}", below=("state.pt", "line.json"))
            written.append(version.number)
    return written


def _write_updates(run: Run, experiment: Experiment, number: int, place: Path) -> dict[str, list[str]]:
    """The attempts of each update, up to a version's; the groups of each that were leased."""
    leased: dict[str, list[str]] = {str(update): [] for update in range(number)}
    (place / "updates").mkdir()
    with open_hub(beside(experiment.store_url, run.id), experiment.hub) as hub:
        trained = {attempt.group for _, attempt in hub.replay(selection=Selection(run=run.id, acked=True))}
        for _, attempt in hub.replay(selection=Selection(run=run.id)):
            update = attempt.group.split("/")[1]
            if update not in leased:
                continue
            _refuse_secrets_in(attempt)
            with (place / "updates" / f"{int(update):06d}").open("ab") as file:
                file.write(encode(attempt))
            if attempt.group in trained and attempt.group not in leased[update]:
                leased[update].append(attempt.group)
    return leased


def _write_data(experiment: Experiment, place: Path) -> dict[str, str]:
    """The files of conversations, under their settings."""
    data = experiment.data
    if data is None or data.file is None:
        return {}
    written = {}
    for setting in ("file", "held_out_file"):
        path = getattr(data, setting)
        if path is not None:
            (place / "data").mkdir(exist_ok=True)
            shutil.copyfile(path, place / "data" / f"{setting}.jsonl")
            _refuse_secrets(place / "data" / f"{setting}.jsonl")
            written[setting] = f"data/{setting}.jsonl"
    return written


def _write_judged(run: Run, experiment: Experiment, versions: list[PolicyVersion], place: Path) -> list[int]:
    """The attempts of the evaluations at both ends of a run, where they are beside its metrics."""
    written = []
    for version in versions:
        file = Path(experiment.train.folder) / run.id / f"judged-{version.number:06d}.attempts"
        if file.is_file():
            (place / "judged").mkdir(exist_ok=True)
            shutil.copyfile(file, place / "judged" / f"{version.number:06d}")
            written.append(version.number)
    return written


def _refuse_secrets(file: Path) -> None:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        _refuse_secret(line, f"line {number} of {file.name}")


def _strings(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """All texts in plain data, with their places."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _strings(item, f"{where}.{name}" if where else name)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _strings(item, f"{where}.{number}")


def _refuse_secrets_in(attempt: Trajectory) -> None:
    for text in _texts(attempt):
        _refuse_secret(text, f"trajectory {attempt.id}")


def _texts(attempt: Trajectory) -> Iterator[str]:
    for turns in attempt.sequences:
        for turn in turns:
            yield from (message.content for message in turn.observation)
            yield turn.action


def _refuse_secret(text: str, where: str) -> None:
    found = _find_secret(text)
    if found is not None:
        raise DataError(
            f"--evidence: {where} has what looks like a {found.what} at character {found.start}. Evidence is exact, so "
            "that nothing in it can be redacted: train on data without it."
        )


@lru_cache(4096)  # prompts are repeated
def _find_secret(text: str) -> Found | None:
    """Keys and passwords of known forms. Random strings are no sign here: hashes and untrained policies write them."""
    return SECRETS.find(Saying(text=text))
