"""The environments of an experiment: opened, recorded, with their families and tasks."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from loomrl.config import EnvironmentConfig, Experiment, QuarantineConfig, TurnLimit
from loomrl.config.experiment import Curriculum as AnyCurriculum
from loomrl.errors import ConfigError, EpisodeError, unknown
from loomrl.gym.base import NO_LEVELS, BaseEnvironment
from loomrl.gym.curriculum import Curriculum, Stake, TaskDraw, TaskFamily, TaskOutcome, open_curriculum, shares
from loomrl.gym.episode import Attempt, run_episode
from loomrl.gym.guard import act, begin
from loomrl.gym.memory import with_memory
from loomrl.gym.opponent import with_opponent
from loomrl.gym.policy import OraclePolicy
from loomrl.gym.preference import with_preference
from loomrl.gym.quarantine import FamilyQuarantine
from loomrl.gym.registry import Registry, make, register_environment
from loomrl.gym.synchronous import PrivateLoop
from loomrl.gym.template import Noted, TaskTemplate, load_templates
from loomrl.named import named
from loomrl.store import LoomDB
from loomrl.types import Source, Task

_log = logging.getLogger(__name__)
DEFAULT_QUARANTINE = QuarantineConfig()


@dataclass(frozen=True, slots=True)
class MixtureMember:
    """One environment of the experiment."""

    config: EnvironmentConfig
    environment: BaseEnvironment
    snapshot: str
    templates: Mapping[str, TaskTemplate] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The environment's name, as in its tasks."""
        return self.environment.name

    @property
    def families(self) -> list[TaskFamily]:
        """The chosen families and the task templates."""
        guess = self.environment.guess_floor
        missing = self.environment.missing
        for name in self.config.families:
            if name in missing:
                raise ConfigError(f"environments {self.name} families={name!r}: {missing[name]}")
        names = [name for name in self.environment.families if self._chosen(name)]
        if not names:
            known = ", ".join(self.environment.families)
            raise ConfigError(f"environments {self.name} families={list(self.config.families)}: none. Known: {known}.")
        return [
            TaskFamily(self.name, name, guess=guess.get(name, 0.0), has_levels=self.levels(name) != NO_LEVELS)
            for name in [*names, *self.templates]
        ]

    def levels(self, family: str) -> tuple[int, ...]:
        """The levels of a family's tasks, or of a template's."""
        template = self.templates.get(family)
        return tuple(self.environment.levels(template.family if template else family))

    def count(self, family: str, level: int, *, held_out: bool) -> int | None:
        """The number of rows that a family's tasks of this level are; None where they are generated."""
        return None if family in self.templates else self.environment.count(family, level, held_out=held_out)

    def task(self, draw: TaskDraw) -> Task:
        """The task that was drawn."""
        template = self.templates.get(draw.family.name)
        task = self.environment.task(template.family if template else draw.family.name, draw.level, draw.seed)
        task = with_memory(template.task(task) if template else task, draw.memory)
        return with_opponent(with_preference(task, draw.preference), draw.opponent)

    def settings(self, draw: TaskDraw) -> Mapping[str, Any]:
        """The environment's settings for attempts at what was drawn."""
        if draw.turns is None or draw.turns >= self.environment.settings.max_steps:
            return self.config.settings
        return {**self.config.settings, "max_steps": draw.turns}

    def has_opponent(self, family: TaskFamily) -> bool:
        """True if tasks of this family, or of the template of this name, have a second seat."""
        template = self.templates.get(family.name)
        return self.environment.has_opponent(template.family if template else family.name)

    def _chosen(self, family: str) -> bool:
        return not self.config.families or any(fnmatchcase(family, pattern) for pattern in self.config.families)


@dataclass(frozen=True, slots=True)
class TaskMixture:
    """All environments of an experiment."""

    members: Mapping[str, MixtureMember]

    @property
    def families(self) -> list[TaskFamily]:
        """Every family of every member, with its environment's share in the run."""
        stakes = {name: Stake(member.config.weight, member.config.min_share) for name, member in self.members.items()}
        share = shares(stakes)
        return [replace(f, share=share[f.environment]) for member in self.members.values() for f in member.families]

    @property
    def snapshots(self) -> dict[str, str]:
        """`Name@version` → snapshot hash, as runs record it."""
        return {f"{name}@{member.environment.version}": member.snapshot for name, member in self.members.items()}

    def member(self, draw: TaskDraw) -> MixtureMember:
        """The environment of a drawn task."""
        return self.members[draw.family.environment]

    def count(self, draw: TaskDraw) -> int | None:
        """The number of rows that training draws such a task from; None where tasks are generated."""
        return self.member(draw).count(draw.family.name, draw.level, held_out=False)


Record = Callable[[str], tuple[str, str]]
"""Environment id → the id with its version, and its recorded snapshot."""


def open_task_mixture(experiment: Experiment, db: LoomDB) -> TaskMixture:
    """Open every environment of the experiment, and record the versions in LoomDB."""
    mixture = gather(experiment.environments, experiment.templates, Registry(db).record)
    levels = experiment.evaluation.levels
    if levels is not None and not any(family.has_levels for family in mixture.families):
        raise ConfigError(
            f"evaluation.levels={list(levels)} has no effect: tasks of {', '.join(mixture.members)} have no levels. "
            "Leave it out, or name a column of levels in the settings."
        )
    return mixture


class TaskSource:
    """The tasks of a training run: a curriculum's, of no quarantined family, and rows of lists without replacement.

    Each row of a family and level is drawn once before any is drawn again, in an order that follows from the seed.
    """

    def __init__(
        self,
        curriculum: Curriculum,
        count: Callable[[TaskDraw], int | None] = lambda draw: None,
        *,
        seed: int = 0,
        quarantine: QuarantineConfig = DEFAULT_QUARANTINE,
    ) -> None:
        self._curriculum = curriculum
        self._count = count
        self._seed = seed
        self.quarantine = FamilyQuarantine(quarantine)
        self._drawn: Counter[str] = Counter()
        """Draws so far, by family and level."""
        self._orders: dict[str, tuple[int, list[int]]] = {}

    def draw(self, rng: random.Random) -> TaskDraw:
        """The next task; an EpisodeError with the causes if no family is left."""
        families = self.progress().keys()
        barred = {family for family in families if not self.quarantine.allows(family)}
        if barred == families:
            cases = "; ".join(map(str, self.quarantine.cases))
            raise EpisodeError(
                f"no task family is left to draw from: {cases}. Repair these environments, or leave them out."
            )
        draw = self._curriculum.draw(rng, without=barred)
        rows = self._count(draw)
        if not rows:
            return draw
        epoch, place = divmod(self._drawn[draw.cell], rows)
        self.skip(draw)
        return replace(draw, seed=self._order(draw.cell, epoch, rows)[place])

    def skip(self, draw: TaskDraw) -> None:
        """Count a draw that is on record."""
        self._drawn[draw.cell] += 1

    def _order(self, cell: str, epoch: int, rows: int) -> list[int]:
        known, order = self._orders.get(cell, (-1, []))
        if known != epoch:
            order = random.Random(f"{self._seed}/{cell}/{epoch}").sample(range(rows), rows)
            self._orders[cell] = (epoch, order)
        return order

    def observe(self, outcomes: Iterable[TaskOutcome]) -> None:
        """Learn from the outcomes of one update."""
        self._curriculum.observe(outcomes)

    def progress(self) -> dict[str, float]:
        """Level per family key, including quarantined ones."""
        return self._curriculum.progress()

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {
            "curriculum": self._curriculum.state_dict(),
            "drawn": dict(self._drawn),
            "quarantine": self.quarantine.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._curriculum.load_state_dict(state["curriculum"])
        self._drawn = Counter(state["drawn"])
        self.quarantine.load_state_dict(state["quarantine"])


def open_task_source(
    mixture: TaskMixture, settings: AnyCurriculum, *, seed: int, quarantine: QuarantineConfig = DEFAULT_QUARANTINE
) -> TaskSource:
    """The source of training tasks; a ConfigError if all tasks of a family are held out."""
    for family in mixture.families:
        member = mixture.members[family.environment]
        counts = [member.count(family.name, level, held_out=False) for level in member.levels(family.name)]
        if all(count == 0 for count in counts):
            raise ConfigError(
                f"environment {family.environment}: family {family.name!r} has nothing to train on, as all of its rows "
                "are held out. Lower held_out, or only evaluate on it."
            )
    curriculum = open_curriculum(mixture.families, settings)
    return TaskSource(curriculum, mixture.count, seed=seed, quarantine=quarantine)


def gather(environments: Sequence[EnvironmentConfig], templates: str | None, record: Record) -> TaskMixture:
    """Open these environments with the task templates of that file; a template without its environment is an error."""
    given = load_templates(templates) if templates else ()
    members: dict[str, MixtureMember] = {}
    for config in environments:
        member = _member(config, given, record)
        if member.name in members:
            raise ConfigError(f"environments: {member.name!r} is listed twice. Give it one entry and a larger weight.")
        members[member.name] = member
    strangers = {template.environment for template in given} - members.keys()
    if strangers:
        raise ConfigError(f"{templates}: environment " + unknown("name", min(strangers), members))
    return TaskMixture(members)


def _member(config: EnvironmentConfig, templates: Sequence[TaskTemplate], record: Record) -> MixtureMember:
    name = resolve_id(config.id)
    id, snapshot = record(f"{name}@{config.version}" if config.version else name)
    environment = make(id, config.settings)
    for family, why in environment.missing.items():
        _log.warning("%s/%s is left out: %s", environment.name, family, why)
    mine = {t.name: t for t in templates if t.environment == environment.name}
    member = MixtureMember(config=config, environment=environment, snapshot=snapshot, templates=mine)
    for template in mine.values():
        _try_out(member, template)
    return member


def _try_out(member: MixtureMember, template: TaskTemplate) -> None:
    """Reset one task at every level of the template, so that errors surface before training starts."""
    ignored = set(template.parameters)
    loop = PrivateLoop()
    try:
        for level in template.levels:
            task = template.task(member.environment.task(template.family, level, 0))
            ignored &= loop.wait(_unread(member.environment, task))
    except Exception as error:
        raise ConfigError(f"template {template.name!r}, level {level}: {member.name} refuses it: {error}") from error
    finally:
        loop.close()
    if ignored or not template.parameters:
        takers = member.environment.template_families
        taken = "; ".join(f"{family} ({', '.join(names)})" for family, names in takers.items())
        raise ConfigError(
            f"template {template.name!r}: it would change nothing, because {member.name}'s family {template.family!r} "
            f"does not read its parameters ({', '.join(sorted(ignored)) or 'there are none'}). "
            f"Families of {member.name} that take some: {taken or 'none'}."
        )


async def _unread(environment: BaseEnvironment, task: Task) -> set[str]:
    """The task's parameters that nothing reads, even in a whole episode of the oracle."""
    noted = Noted(task.parameters)
    try:
        await begin(environment, replace(task, parameters=noted))
        for _ in range(environment.settings.max_steps):
            if not noted.unread:
                break
            step = await act(environment, _perfect(environment))
            if step.terminated or step.truncated:
                break
    finally:
        await environment.close()
    return noted.unread


def _perfect(environment: BaseEnvironment) -> str:
    """The oracle's action; empty if there is no oracle."""
    try:
        return environment.oracle()
    except NotImplementedError:
        return ""


def resolve_id(id: str) -> str:
    """The environment's id; one given as `pkg.module:Class` is registered under its own name first."""
    if ":" not in id:
        return id
    entry_point, _, _ = id.partition("@")
    cls = named(entry_point, what="environment")
    if not (isinstance(cls, type) and issubclass(cls, BaseEnvironment)):
        raise ConfigError(f"environment {id!r} is no environment. Derive it from loomrl.gym.BaseEnvironment.")
    name = cls.name or cls.__name__
    register_environment(name=name, entry_point=entry_point, version=cls.version)
    return name


def transcript(environment: BaseEnvironment, task: Task) -> list[tuple[str, str]]:
    """The oracle's episode: speakers and texts, with the reward of each turn."""
    attempt = Attempt(id="sample", task=task, group="sample", source=Source.DEMONSTRATION)
    played = asyncio.run(run_episode(environment, OraclePolicy(environment, random.Random(0)), attempt))
    said: list[tuple[str, str]] = []
    for turn in played.turns:
        said += [(message.role, message.text) for message in turn.observation]
        parts = ", ".join(f"{name} {value:g}" for name, value in turn.reward.parts.items())
        said += [("assistant (oracle)", turn.action), ("reward", f"{turn.reward.total:g}: {parts}")]
    return said + ([("failed", str(played.failure))] if played.failure else [])


def check_turn_limit(limit: TurnLimit | None, mixture: TaskMixture) -> None:
    """A ConfigError if it changes nothing, or where an environment cannot do with so few turns."""
    if limit is None:
        return
    shortened = []
    for name, member in mixture.members.items():
        environment = member.environment
        if environment.player is not None:
            raise ConfigError(
                f"rollout.turn_limit has no effect on {name}, whose agents end their attempts themselves: leave it out."
            )
        if environment.settings.max_steps > limit.first:
            make(f"{name}@{environment.version}", {**member.config.settings, "max_steps": limit.first})
            shortened.append(name)
    if not shortened:
        longest = max(member.environment.settings.max_steps for member in mixture.members.values())
        raise ConfigError(
            f"rollout.turn_limit.first={limit.first} shortens nothing: no attempt has more than max_steps={longest} "
            "turns. Lower it, raise max_steps in the environment's settings, or leave turn_limit out."
        )
