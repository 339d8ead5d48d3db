"""A LoomDB with two endpoints, a run and a foreign agent, and its columns in a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loomrl.analytics.engine import ChdbEngine
from loomrl.analytics.feeder import Fed
from loomrl.analytics.feeding import Feeding
from loomrl.analytics.place import StoreLocation
from loomrl.analytics.question import QueryLimits, open_asking
from loomrl.bus.agent import open_agent_hub, record_agent
from loomrl.config import HubConfig
from loomrl.hub.open import open_endpoint_hub, open_hub
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.feedback import append_feedback
from loomrl.store.observations import Observation, append_observations, unit_hash
from loomrl.store.rewards import StoredReward, store_rewards
from loomrl.store.runs import Run, start_run
from loomrl.types import End, Feedback, Reward, Source, Task, Trajectory
from tests.hub.hub_samples import attempt

DAY = 86_400.0
AT = 20_000 * DAY
"""Noon is half a day later."""
VERSIONS = ("math-1/40", "math-1/50")


class World:
    """What is on record, and the place of its columns, which an engine opens or this process."""

    def __init__(self, url: str, folder: Path, engine: ChdbEngine | None = None) -> None:
        self.url, self.place, self.engine = url, StoreLocation(folder=folder / "columns"), engine
        self.db: LoomDB = open_store(url)
        for name in ("talk", "walk"):
            set_endpoint(self.db, name, [Arm(name="stable", policy=VERSIONS[0])], at=AT)

    def close(self) -> None:
        self.db.close()

    def fill(self) -> None:
        """19 trajectories of which 10 are judged, three of them twice; feedback on four; eleven exposures."""
        talks = self.serve(10)
        self.serve(3, endpoint="walk")
        self.train(4)
        self.come(2)
        self.judge(talks, 0.5)
        self.judge(talks[:3], 1.0, round=1)
        for n, id in enumerate(talks[:4]):
            self.say(id, float(n % 2), day=n)
        self.expose(["ada", *talks[:5]], "stable", 0.25)
        self.expose(talks[5:], "new", 0.75)

    def serve(self, count: int, *, endpoint: str = "talk", first: int = 0) -> list[str]:
        """Sessions that became trajectories; the second half by another version."""
        made = [served(f"{endpoint}-{n}", endpoint, VERSIONS[2 * n >= count]) for n in range(first, first + count)]
        with open_endpoint_hub(self.url, endpoint, HubConfig()) as hub:
            hub.append(made)
        return [one.id for one in made]

    def train(self, count: int) -> None:
        nothing = dict.fromkeys(("experiment", "resolved", "code"), "")
        start_run(self.db, Run(id="math-1", name="math", kind="train", environments={}, started_at=AT, **nothing))
        with open_hub(beside(self.url, "math-1"), HubConfig()) as hub:
            hub.append(
                [
                    attempt(
                        f"roll-{n}",
                        run="math-1",
                        first_version=n,
                        last_version=n,
                        success=float(n % 2),
                        failed=n == 0,
                        started_at=AT,
                        finished_at=AT + 2,
                    )
                    for n in range(count)
                ]
            )

    def come(self, count: int) -> None:
        """An agent of somebody else's."""
        record_agent(self.db, "Zero", at=AT)
        extra = {"foreign": {"metadata": {"total_tokens": 90, "total_cost_usd": 0.25}, "turns": [{"ms": 500}]}}
        made = [
            Trajectory(
                id=f"zero-{n}", task=Task("Zero", "gpt", "coding", 1, 0), turns=(), end=End.TERMINATED, reward=Reward(),
                group=f"zero-{n}", source=Source.FOREIGN, started_at=AT, finished_at=AT + 60, extra=extra,
            )
            for n in range(count)
        ]  # fmt: skip
        with open_agent_hub(self.url, "Zero", HubConfig()) as hub:
            hub.append(made)

    def judge(self, ids: Sequence[str], total: float, *, round: int = 0, endpoint: str = "talk") -> None:
        content = {"components": {"task_completion": {"value": total}, "code_quality": {"value": None}}}
        made = [
            StoredReward(
                id=f"{id}:{round}", trajectory=id, endpoint=endpoint, task=f"{endpoint}/session/1", total=total,
                confidence=0.5, content=content, created_at=AT + round,
            )
            for id in ids
        ]  # fmt: skip
        store_rewards(self.db, made)

    def say(self, id: str, value: float, *, kind: str = "thumb", day: int = 0) -> None:
        one = Feedback(
            id=f"{id} {kind} {day}", trajectory=id, source="human", kind=kind, value=value, comment="a secret word",
            created_at=AT + day * DAY,
        )  # fmt: skip
        append_feedback(self.db, [one])

    def expose(self, units: Sequence[str], arm: str, value: float, *, endpoint: str = "talk") -> None:
        every = [
            Observation(revision=1, arm=arm, unit=unit_hash(unit), metric="reward", value=value, at=AT, test="t")
            for unit in units
        ]
        append_observations(self.db, endpoint, "gateway", every, at=AT)

    def feed(self, **how: Any) -> Fed:
        with Feeding(self.url, self.place, engine=self.engine) as feeding:
            return feeding.round(**how)

    def ask(self, sql: str) -> list[Mapping[str, Any]]:
        return self.ask_all(sql)[0]

    def ask_all(self, *questions: str) -> list[list[Mapping[str, Any]]]:
        """The answers to several questions, for which the folder is opened once."""
        with open_asking(self.place, QueryLimits(timeout_s=60), engine=self.engine) as asking:
            answers = [asking.ask(sql) for sql in questions]
        return [[dict(zip(answer.columns, row, strict=True)) for row in answer.rows] for answer in answers]

    def value(self, sql: str) -> Any:
        ((value,),) = (row.values() for row in self.ask(sql))
        return value


def served(id: str, endpoint: str, version: str) -> Trajectory:
    """A session's trajectory, as far as the columns show it; only "talk" sessions end with an outcome."""
    success = 1.0 if endpoint == "talk" else None
    extra = {"session": {"success": success, "seconds": 1.5, "arms": ["stable"], "versions": [version]}}
    made: Trajectory = attempt(id, environment=endpoint, family="session", source=Source.PRODUCTION, extra=extra)
    task = Task(endpoint, version, "session", 1, 0)
    fields = {name: getattr(made, name) for name in made.__dataclass_fields__}
    return Trajectory(**fields | {"task": task, "started_at": AT, "finished_at": AT + DAY / 2})
