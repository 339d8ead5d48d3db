"""`loomrl verify`: what a bundle claims about a version, derived again and compared, link by link."""

import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import torch
from rich.console import Console

from loomrl.algorithms.arithmetic import arithmetic
from loomrl.algorithms.language.again import TOLERANCES, RecordMismatch, RunAgain, Tolerance
from loomrl.algorithms.language.publish import TOLERANCE as PROBED
from loomrl.artifacts import open_artifacts
from loomrl.canonical import content_hash
from loomrl.config import CustomAlgorithm, Experiment, Remote, RewardModel, parse_experiment
from loomrl.config.evaluation import Way
from loomrl.errors import ConfigError, DataError, LoomError
from loomrl.evaluation.report import judge
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.commands.output import table
from loomrl.experiments.verify.bundle import EvidenceBundle, RunEvidence
from loomrl.experiments.verify.verdict import VerdictAgain
from loomrl.feedback.chat_file import read_chat_files
from loomrl.files import file_hash, scratch
from loomrl.gym.held_out import list_left_out
from loomrl.gym.memory import remembers
from loomrl.gym.registry import snapshot_of
from loomrl.gym.task_mixture import resolve_id
from loomrl.inference.chat import open_chat
from loomrl.inference.model import open_model
from loomrl.inference.weights.sealed import weights_hash
from loomrl.load import parse_yaml
from loomrl.run.source import source_hashes
from loomrl.store import open_store
from loomrl.store.runs import POLICIES, RUNS
from loomrl.telemetry.progress import progress
from loomrl.types import Trajectory

SEEDS = 2**31
MOST_SHOWN = 20


@dataclass(slots=True)
class LinkReport:
    """The checks of one link of one run."""

    run: str
    link: str
    checked: int = 0
    of: int = 0
    unit: str = ""
    how: str = "equal"
    unchecked: str = ""
    """The reason why something was not checked; empty if the share alone decided."""


@dataclass(kw_only=True)
class RecordVerification:
    """The checks of a bundle, and their findings."""

    version: str
    root: str
    share: float
    seed: int
    links: list[LinkReport] = field(default_factory=list)
    mismatches: list[RecordMismatch] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """True if nothing that was checked differs."""
        return not self.mismatches

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        told = {"version": self.version, "root": self.root, "share": self.share, "seed": self.seed}
        links = [asdict(link) for link in self.links]
        found = [one._asdict() for one in self.mismatches]
        return told | {"holds": self.holds, "links": links, "mismatches": found, "seconds": round(self.seconds, 1)}


def verify_bundle(
    bundle: EvidenceBundle, *, share: float = 0.05, seed: int | None = None, model: Path | None = None
) -> RecordVerification:
    """Derive a share of every link again. `model`: the folder of the first weights, if the bundle lacks it."""
    if not 0 < share <= 1:
        raise ConfigError(f"--share {share:g}: a share above 0, at most 1.")
    began = time.monotonic()
    seed = secrets.randbelow(SEEDS) if seed is None else seed
    found = RecordVerification(version=str(bundle.manifest["version"]), root=bundle.root, share=share, seed=seed)
    listed = bundle.manifest["files"]
    files = LinkReport("", "files", len(listed), len(listed), "files")
    found.links.append(files)
    found.mismatches += [RecordMismatch(_link_of(name), name, fault) for name, fault in bundle.damaged()]
    if not found.holds:
        files.how = "differs"
    else:
        _verify_record(bundle, found, model)
    found.seconds = time.monotonic() - began
    return found


def _link_of(file: str) -> str:
    """The link that a file of the bundle is evidence of."""
    parts = file.split("/")
    places = {
        "updates": "tokens and rewards",
        "checkpoints": "update",
        "judged": "evaluation",
        "data": "data rows",
        "origin": "origin",
    }
    if parts[0] in ("model", "adapter"):
        return "weights"
    return places.get(parts[2], "files") if len(parts) > 3 else "settings"


def _verify_record(bundle: EvidenceBundle, found: RecordVerification, model: Path | None) -> None:
    evidence = bundle.evidence
    runs = evidence.runs
    if evidence.version != found.version or not runs or any(not entry.policies for entry in runs):
        found.mismatches.append(RecordMismatch("settings", found.version, "the record is about another version"))
        return
    rng = random.Random(found.seed)
    for index, entry in enumerate(runs):
        checked = _RunCheck(bundle, entry, runs[:index], found, rng, model, is_last=index == len(runs) - 1)
        found.mismatches += checked.all()


@dataclass
class _RunCheck:
    """The check of one run of the lineage."""

    bundle: EvidenceBundle
    entry: RunEvidence
    earlier: Sequence[RunEvidence]
    found: RecordVerification
    rng: random.Random
    model: Path | None
    is_last: bool
    _links: dict[str, LinkReport] = field(default_factory=dict)

    def all(self) -> list[RecordMismatch]:
        """Every mismatch that is found. Work of minutes begins only where the record is consistent."""
        # A run that was resumed names its code once a process: the same difference is told once.
        mismatches = [*dict.fromkeys([*self._settings(), *self._code(), *self._data()])]
        if not mismatches:
            mismatches += self._again()
        apart = {one.link for one in mismatches}
        for link in self._links.values():
            if link.link in apart:
                link.how = "differs"
            elif not link.checked:
                link.how = ""
        self.found.links += self._links.values()
        return mismatches

    def _link(self, name: str) -> LinkReport:
        return self._links.setdefault(name, LinkReport(self.run, name))

    @property
    def run(self) -> str:
        """The run's id."""
        return self.entry.run.id

    @property
    def place(self) -> Path:
        """The run's files."""
        return self.bundle.folder / "runs" / self.run

    # -- what needs no computation ------------------------------------------------------------------------------

    def _settings(self) -> Iterator[RecordMismatch]:
        """Hashes that must follow from each other."""
        run = self.entry.run
        policies = self.entry.policies
        link = self._link("settings")
        link.checked = link.of = len(policies)
        link.unit = "versions"
        self.experiment = _parse(run.resolved, self.run)
        if self.experiment.sha256 != run.experiment:
            yield RecordMismatch("settings", self.run, "the experiment's hash is not that of its settings")
        before = run.parent_policy
        if self.earlier and before != self.earlier[-1].policies[-1].id:
            yield RecordMismatch("settings", self.run, f"its parent is {before}, which is not the version before it")
        for policy in policies:
            if policy.experiment != run.experiment or policy.run != self.run:
                yield RecordMismatch("settings", policy.id, "it is of another run or experiment")
            if policy.id != f"{self.run}/{policy.number}" or policy.parent != before:
                yield RecordMismatch("settings", policy.id, f"its parent on record is {policy.parent}, not {before}")
            before = policy.id
        for number in self.entry.checkpoints:
            yield from self._line(number)

    def _line(self, number: int) -> Iterator[RecordMismatch]:
        """A checkpoint against its version on record."""
        where = f"{self.run}/{number}"
        policy = next((each for each in self.entry.policies if each.number == number), None)
        line = self._read_line(number)
        if policy is None or line["done"] != number or line["experiment"] != self.entry.run.experiment:
            yield RecordMismatch("settings", where, "the checkpoint is of another version or experiment")
            return
        for name in ("leases", "weights", "arithmetic"):
            if policy.data.get(name) != line.get(name) and name in {*policy.data, *line}:
                yield RecordMismatch("settings", where, f"{name}: version and checkpoint differ")

    def _code(self) -> Iterator[RecordMismatch]:
        """Hashes of the code here, against those on record."""
        link = self._link("code")
        link.unit = "hashes"
        for environment in self.experiment.environments:
            resolve_id(environment.id)
        for id, hash in self.entry.run.environments.items():
            link.of += 1
            link.checked += 1
            try:
                here = snapshot_of(id).hash
            except LoomError as error:
                yield RecordMismatch("code", id, str(error))
                continue
            content = self.entry.environments.get(id)
            if content is not None and content_hash(content) != hash:
                yield RecordMismatch("code", id, "the snapshot's hash is not that of its content")
            if here != hash:
                yield RecordMismatch("code", id, f"snapshot {hash[:12]} on record, {here[:12]} here")
        sources = source_hashes(self.experiment)
        for begun in self.entry.begun:
            if not begun.get("sources"):
                link.unchecked = "the run is older than hashes of sources"
                continue
            for name in sorted(begun["sources"].keys() | sources.keys()):
                link.of += 1
                link.checked += 1
                if begun["sources"].get(name) != sources.get(name):
                    told = f"revision {self.entry.run.code[:40]}"
                    yield RecordMismatch("code", name, f"other code made the run ({told}): verify with that one")

    def _data(self) -> Iterator[RecordMismatch]:
        """Files of conversations against the hash on record."""
        if not self.entry.data:
            return
        link = self._link("data")
        link.unit = "conversations"
        settings = {f"data.{setting}": str(self.place / file) for setting, file in self.entry.data.items()}
        data = self.experiment.override(settings).data
        assert data is not None, "it has files"
        try:
            files = read_chat_files(data)
        except DataError as error:
            yield RecordMismatch("data", self.run, str(error))
            return
        link.checked = link.of = len(files.train) + len(files.held_out)
        for policy in self.entry.policies:
            if policy.data.get("sha256") != files.sha256:
                yield RecordMismatch("data", policy.id, "it learnt from other conversations than those in the bundle")

    # -- what is computed again -----------------------------------------------------------------------------------

    def _again(self) -> Iterator[RecordMismatch]:
        stretches = self._stretches()
        updates = self.entry.policies[-1].number
        link = self._link("update")
        link.of = updates
        link.unit = "updates"
        reachable = sum(last - first for first, last in stretches)
        if reachable < updates:
            link.unchecked = f"{updates - reachable} updates have no checkpoint before or behind them (train.keep=all)"
        reason = self._why_not()
        if reason is not None:
            link.unchecked = reason
            return
        drawn = self._draw(stretches)
        link.checked = sum(last - first for first, last in drawn)
        for number in sorted({number for stretch in drawn for number in stretch}):
            yield from self._hash(number)
        with ExitStack() as stack:
            again = self._open(stack)
            yield from self._origin(again)  # first: it begins on a run that has nothing yet
            with progress(f"verify {self.run}", max(link.checked, 1)) as report:
                done = 0
                for first, last in drawn:
                    yield from again.stretch(
                        self._checkpoint(first),
                        self._checkpoint(last),
                        updates=lambda update: self.bundle.attempts(f"runs/{self.run}/updates/{update:06d}"),
                        leased=lambda update: self.entry.leased.get(str(update), []),
                    )
                    done += last - first
                    report(done)
            yield from self._evaluations(again)
            if self.is_last:
                yield from self._weights(again)
                yield from self._verdicts()
            self._tell(again)

    def _hash(self, number: int) -> Iterator[RecordMismatch]:
        """The weights of a checkpoint against the hash on record."""
        wanted = self._read_line(number).get("weights")
        state = torch.load(self._checkpoint(number) / "state.pt", weights_only=True, mmap=True)
        if wanted is None:
            self._link("update").unchecked = "the run is older than hashes of weights"
        elif weights_hash(state["learner"]["module"]) != wanted:
            yield RecordMismatch("update", f"{self.run}/{number}", "its weights do not have the hash on record")

    def _tell(self, again: RunAgain) -> None:
        """How each link was checked."""
        tally = again.tally
        within = again.within
        update = self._link("update")
        update.how = "equal bits" if again.exact else f"distance {tally.distance:.2g} of {within.distance:g} allowed"
        tokens = self._link("tokens")
        tokens.checked = tally.tokens
        tokens.unit = "tokens"
        ids = f"equal ids (margin {tally.margin:.1g} of {within.margin:g}), " if within.margin is not None else ""
        tokens.how = f"{ids}log-probabilities within {tally.logprob:.1g} of {within.logprob:g}"
        if within.margin is None:
            tokens.unchecked = f"ids: engine.kind={self.experiment.engine.kind} draws by random numbers of its own"
        for name in ("tasks", "rewards"):
            link = self._link(name)
            link.checked = tally.attempts
            link.unit = "attempts"
        for name, reason in again.unchecked.items():
            self._link(name).unchecked = reason

    def _stretches(self) -> list[tuple[int, int]]:
        """Neighbouring checkpoints, from the first to the last."""
        numbers = sorted(self.entry.checkpoints)
        return list(pairwise(numbers))

    def _draw(self, stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Stretches in a random order until they have the share of the updates; at least one."""
        wanted = self.found.share * sum(last - first for first, last in stretches)
        drawn: list[tuple[int, int]] = []
        for first, last in self.rng.sample(stretches, len(stretches)):
            if sum(b - a for a, b in drawn) < wanted - 1e-9:
                drawn.append((first, last))
        return sorted(drawn)

    def _why_not(self) -> str | None:
        """The reason why nothing of the run can be made again."""
        experiment = self.experiment
        if isinstance(experiment.algorithm, RewardModel | Remote):
            return f"algorithm.kind={experiment.algorithm.kind}: no loop of ours made it"
        if experiment.asynchronous:
            return "rollouts and learning overlapped: no seed says which weights drew a token"
        if experiment.data is not None and not self.entry.data:
            return "it learnt from a data set, whose sessions are not in the evidence"
        if getattr(getattr(experiment.algorithm, "kl", None), "teacher", None):
            return "its teacher is not in the evidence"
        if self._needs_model() and self.model is None:
            return "it began with a model from elsewhere: give its folder, --model FOLDER"
        return None

    def _needs_model(self) -> bool:
        return bool(self.entry.origin)

    def _open(self, stack: ExitStack) -> RunAgain:
        """The run on scratch databases, in this process alone."""
        folder = scratch("verify")
        experiment = self._here(folder)
        artifacts = open_artifacts(experiment.artifact_url)
        if not self._needs_model():
            name = open_algorithm(experiment).resolved.built_name
            artifacts.put_folder(name, self.place / "origin")
        with open_store(experiment.store_url) as db, db.write() as connection:
            for entry in self.earlier:
                RUNS.insert(connection, [entry.run])
                POLICIES.insert(connection, entry.policies)
        algo = open_algorithm(experiment, run=self.run).build_algo()
        stack.callback(algo.stop)
        resolved = algo.config.resolved
        trusts = resolved.model.trust_remote_code
        dtype = resolved.model.dtype
        made_on = self._read_line(self.entry.checkpoints[-1]).get("arithmetic")
        return RunAgain(
            algo,
            open_chat(resolved.origin, trust_remote_code=trusts),
            open_model(resolved.origin, dtype=dtype, trust_remote_code=trusts),
            _within(dtype, self.experiment.engine.kind),
            exact=made_on in (None, arithmetic()) and open_algorithm(self.experiment).algorithm.learners.count < 2,
        )

    def _here(self, folder: Path) -> Experiment:
        """The experiment with this machine's places, and without other processes."""
        changes: dict[str, Any] = {
            "store_url": f"sqlite:///{folder}/loom.db",
            "artifact_url": str(folder / "artifacts"),
            "train.folder": str(folder / "runs"),
            "rollout.runners": 0,
            "placement": {},
        }
        own = "settings." if isinstance(self.experiment.algorithm, CustomAlgorithm) else ""
        attention = open_algorithm(self.experiment).algorithm.learners.attention  # padded rows give other bits
        changes[f"algorithm.{own}learners"] = {"attention": attention}
        if self.experiment.engine.kind != "torch":
            changes["engine"] = {"kind": "torch"}
        for setting, file in self.entry.data.items():
            changes[f"data.{setting}"] = str(self.place / file)
        if self._needs_model():
            assert self.model is not None, "else it was refused"
            self._refuse_other_model(self.model)
            changes["algorithm.model.path"] = str(self.model)
        return self.experiment.override(changes)

    def _refuse_other_model(self, model: Path) -> None:
        wanted = self.entry.origin
        for name in wanted:
            if not (model / name).is_file() or file_hash(model / name) != wanted[name]:
                raise ConfigError(
                    f"--model {model}: {name} is not that of the model that run {self.run} began with "
                    f"(SHA-256 {wanted[name][:12]}). Give that model's folder."
                )

    def _origin(self, again: RunAgain) -> Iterator[RecordMismatch]:
        """The first version: from the settings, from another model, or from its parent."""
        link = self._link("origin")
        link.of = 1
        link.unit = "version"
        if 0 not in self.entry.checkpoints:
            link.unchecked = "the first checkpoint is not there any more"
            return
        if self.rng.random() >= self.found.share:
            return
        link.checked = 1
        yield from again.begin(self._checkpoint(0))

    def _weights(self, again: RunAgain) -> Iterator[RecordMismatch]:
        """The model that leaves with the bundle."""
        link = self._link("weights")
        link.of = 1
        link.unit = "model"
        number = self.entry.policies[-1].number
        folder = self.bundle.folder / "model"
        if number not in self.entry.checkpoints or not (folder / "config.json").is_file():
            link.unchecked = "the version's model is not in the bundle as a whole"
            return
        link.checked = 1
        again.algo.rewind(self._checkpoint(number))
        wanted = again.algo.weights()
        dtype = again.algo.config.resolved.model.dtype
        given = open_model(folder, dtype=dtype).state_dict()
        other = sorted(name for name, tensor in wanted.items() if not torch.equal(given[name].cpu(), tensor))
        if other:
            yield RecordMismatch(
                "weights", self.found.version, f"model/: {len(other)} tensors differ, such as {other[0]}"
            )

    def _verdicts(self) -> Iterator[RecordMismatch]:
        """Mismatches between the gate's verdict on record and the same comparison repeated."""
        link = self._link("verdict")
        link.unit = "tasks"
        model = self.bundle.folder / "model"
        if not self.bundle.evidence.verdicts:
            link.unchecked = "no verdict is on record"
        for verdict in self.bundle.evidence.verdicts:
            if not (model / "config.json").is_file():
                link.unchecked = "the version's model is not in the bundle as a whole"
                return
            number = self.entry.policies[-1].number
            again = VerdictAgain(verdict, self.experiment, number, model, self.found.share, self.rng)
            yield from again.compare()
            link.checked += again.checked
            link.of += again.of
            link.unchecked = again.unchecked

    # -- evaluations ------------------------------------------------------------------------------------------------

    def _evaluations(self, again: RunAgain) -> Iterator[RecordMismatch]:
        link = self._link("evaluation")
        link.unit = "attempts"
        reports = {each.id: each.report for each in self.entry.evaluations}
        for number in self.entry.judged:
            attempts = self.bundle.attempts(f"runs/{self.run}/judged/{number:06d}")
            if number not in self.entry.checkpoints:
                link.unchecked = f"version {number} has no checkpoint"
                continue
            again.algo.rewind(self._checkpoint(number))
            for way in get_args(Way):
                report = reports.pop(f"{self.run}/{number}/{way}", None)
                if report is not None:
                    yield from self._evaluation(again, number, way, attempts, report)
        if reports:
            link.unchecked = f"the attempts of {len(reports)} evaluations were not kept, such as {min(reports)}"

    def _evaluation(
        self, again: RunAgain, number: int, way: Any, attempts: Sequence[Trajectory], report: Mapping[str, Any]
    ) -> Iterator[RecordMismatch]:
        """A report from its attempts, their tasks from the settings, and a share of the attempts themselves."""
        algo = again.algo
        name, settings, sampling = algo.evaluations.plan(number, way)
        where = f"{self.run}/{number}/{way}"
        known = {each.id: each for each in attempts if each.id.startswith(f"{self.run}/{name}/")}
        plans = algo.held_out(name, settings, sampling).plans
        if [plan.attempt.id for plan in plans] != [*known]:
            yield RecordMismatch("evaluation", where, "its attempts are not those that the settings plan")
            return
        made = judge(
            f"{self.run}/{number} {way}",
            known.values(),
            confidence=algo.experiment.evaluation.confidence,
            left_out=list_left_out(algo.source.mixture, [each.task for each in known.values()]),
        )
        if json.loads(json.dumps(made.as_dict())) != report:
            yield RecordMismatch("evaluation", where, "its report is not that of its attempts")
        link = self._link("evaluation")
        link.of += len(plans)
        if any(remembers(member.environment) for member in algo.source.mixture.members.values()):
            link.unchecked = "attempts with a memory of earlier ones"
            return
        count = max(1, round(self.found.share * len(plans)))
        drawn = self.rng.sample(plans, min(count, len(plans)))
        link.checked += len(drawn)
        pairs = [(plan, known[plan.attempt.id]) for plan in drawn]
        for one in again.attempts(pairs, weights=algo.weights()):
            yield RecordMismatch("evaluation", one.where, f"{one.link}: {one.what}")

    def _checkpoint(self, number: int) -> Path:
        return self.place / "checkpoints" / f"{number:06d}"

    def _read_line(self, number: int) -> dict[str, Any]:
        line: dict[str, Any] = json.loads((self._checkpoint(number) / "line.json").read_text())
        return line


def _within(dtype: str, engine: str) -> Tolerance:
    """The differences that may be made, of other engines those that their probes may have."""
    own = TOLERANCES[dtype]
    return own if engine == "torch" else own._replace(logprob=PROBED[dtype], margin=None)


def _parse(resolved: str, run: str) -> Experiment:
    origin = f"run {run}"
    experiment = parse_experiment(parse_yaml(resolved, origin=origin), origin=origin)
    if not isinstance(experiment, Experiment):
        raise DataError(f"run {run}: a training of a language policy is needed.")
    return experiment


def render(found: RecordVerification, console: Console) -> None:
    """Each link with what was checked and how; then what differs."""
    console.print(f"{found.version}: bundle {found.root}", highlight=False)
    console.print(f"share {found.share:g}, seed {found.seed}\n", highlight=False)
    rows = [
        (
            link.run,
            link.link,
            f"{link.checked:,}" + f" of {link.of:,}" * bool(link.of),
            link.unit,
            link.how,
            link.unchecked,
        )
        for link in found.links
    ]
    console.print(table("", ("run", "link", "checked>", "", "how", "not checked, because"), rows))
    console.print()
    for one in found.mismatches[:MOST_SHOWN]:
        console.print(f"{one.link}  {one.where}: {one.what}", style="red", markup=False, highlight=False)
    more = len(found.mismatches) - MOST_SHOWN
    if more > 0:
        console.print(f"… and {more} more")
    console.print(f"{'holds' if found.holds else 'does not hold'}, {found.seconds:.1f} s", highlight=False)
