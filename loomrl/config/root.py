"""Settings shared by experiments of every kind."""

from typing import Any, Literal

from pydantic import Field

from loomrl.canonical import content_hash
from loomrl.config.basic import EntryPoint, PathText, Seed, StoreUrl
from loomrl.config.placement import Placement
from loomrl.schema import Config


class Root(Config):
    """Frozen data that says everything about a run or a service. Equal ones have equal `sha256`: their identity."""

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)
    """Its name; runs are called by it and a number."""
    store_url: StoreUrl = "sqlite:///loom.db"
    """LoomDB: `sqlite:///FILE` or `postgresql://HOST/NAME`."""
    artifact_url: PathText = "artifacts"
    """Where checkpoints and files go: a folder, or `s3://BUCKET/PREFIX`."""

    @property
    def sha256(self) -> str:
        """Content hash of the resolved experiment."""
        return content_hash(self.plain)


class Training(Root):
    """Settings of every training, of whatever kind."""

    seed: Seed = 0
    """Seed of everything that is drawn."""
    placement: Placement = Placement()
    parent: str | None = None
    """The policy version whose weights the run begins with: `RUN`, or `RUN/20`. Of language also a model's folder, or
    `production:ENDPOINT`; with a data set, null is the policy that it was made for.
    """


class CustomAlgorithm(Config):
    """`entry_point` names your configuration class: its `of(experiment, run=…)` returns the RLlib configuration."""

    kind: Literal["custom"] = "custom"
    entry_point: EntryPoint
    """The configuration class, as `package.module:Class`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Its own settings."""


class WandB(Config):
    """Weights & Biases; offline works without an account or a network."""

    project: str = "loomrl"
    """The project's name."""
    mode: Literal["online", "offline"] = "offline"
    """`offline` writes to a local folder, `online` sends."""


class Records(Config):
    """Logs of a run."""

    folder: PathText = "runs"
    """Folder for metrics and reports, in a subfolder per run."""
    wandb: WandB | None = None
