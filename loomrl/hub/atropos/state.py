"""The durable state of the Atropos protocol: trainer, environments, batches handed out, held and unanswered."""

from math import ceil
from typing import Annotated, Any

from pydantic import BaseModel, Field

from loomrl.hub.atropos.batch import Candidate

PREFIX = "atropos/"
"""Before the names of environments in the hub that came over this protocol."""
LEAST_WEIGHT = 0.01

Answer = dict[str, Any]


class Registration(BaseModel):
    """A trainer's registration."""

    wandb_group: str
    wandb_project: str
    batch_size: Annotated[int, Field(ge=1)]
    max_token_len: int
    checkpoint_dir: str
    save_checkpoint_interval: int
    starting_step: int
    num_steps: int


class RegisterEnv(BaseModel):
    """An environment's registration."""

    max_token_length: int
    desired_name: Annotated[str, Field(max_length=150, pattern=r"^[^\x00]*$")]
    weight: float
    group_size: Annotated[int, Field(ge=1)]
    min_batch_allocation: Annotated[float, Field(ge=0, le=1)] | None = None


class Environment(RegisterEnv):
    """A registered environment. Its id is its place in the list."""

    name: str
    connected: bool = True

    @property
    def share(self) -> float:
        """The part of a batch that must be its own."""
        return self.min_batch_allocation or 0.0 if self.connected else 0.0


class Handed(BaseModel):
    """A batch that went to the trainer and is not acked; `received` once its answer got out whole."""

    lease: str
    received: bool = False


class Held(BaseModel):
    """A group smaller than its environment's groups are. It waits for others to make up the size with it."""

    group: str
    environment: int
    size: int


class Submission(BaseModel):
    """A post, kept until its answer got out whole."""

    id: str
    content: str
    at: float
    answers: list[Answer]


class State(BaseModel):
    """All of it."""

    trainer: Registration | None = None
    started: bool = False
    step: int = 0
    environments: list[Environment] = []
    handed: list[Handed] = []
    drained: bool = False
    """The trainer was told `null`: its next poll means that it trained on everything handed out."""
    held: list[Held] = []
    submissions: dict[str, Submission] = {}

    def environment(self, env_id: int | None) -> Environment | None:
        """The one registered with this id, if any."""
        return self.environments[env_id] if env_id is not None and 0 <= env_id < len(self.environments) else None

    def hub_name(self, env_id: int | None) -> str:
        """Its name in the hub; groups without a registered environment share one name."""
        environment = self.environment(env_id)
        return PREFIX + (environment.name if environment else "")

    @property
    def minimums(self) -> dict[str, int]:
        """Sequences per batch that environments are promised."""
        size = self.trainer.batch_size if self.trainer else 0
        least = {PREFIX + environment.name: int(size * environment.share) for environment in self.environments}
        return {name: count for name, count in least.items() if count}

    def status_of(self, env_id: int, queue: list[Candidate]) -> Answer:
        """The numbers by which an environment throttles itself. `queue_size` counts in groups of its own size.

        Other environments' groups count packed to the largest size, less what they are promised anyway.
        """
        environment = self.environments[env_id]
        sizes: dict[str, int] = {}
        for group in queue:
            sizes[group.environment] = sizes.get(group.environment, 0) + group.size
        mine = self.hub_name(env_id)
        own = sizes.pop(mine, 0)
        largest = max((group.size for group in queue), default=1)
        group_size = max([environment.group_size, *(group.size for group in queue if group.environment == mine)])
        minimums = self.minimums
        packed = {name: ceil(count / largest) * largest for name, count in sizes.items()} if largest > 1 else {}
        others = sum(max(0, count - minimums.get(name, 0)) for name, count in packed.items())
        return {
            "current_step": self.step,
            "queue_size": (own + others) // group_size,
            "unallocated_fraction": 1.0 - min(1.0, sum(known.share for known in self.environments)),
            "self_queue_size": own // group_size,
            "max_group_size": largest,
            "env_weight": self._weight(environment),
        }

    def _weight(self, environment: Environment) -> float:
        connected = [known for known in self.environments if known.connected]
        total = sum(known.max_token_length * max(0.0, known.weight) for known in connected)
        return max(LEAST_WEIGHT, environment.max_token_length * environment.weight / total if total else 0.0)
