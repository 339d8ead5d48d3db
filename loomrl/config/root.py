"""Settings shared by experiments of every kind."""

from typing import Any, Literal

from pydantic import Field

from loomrl.canonical import content_hash
from loomrl.config.basic import EntryPoint, PathText, Seed, StoreUrl
from loomrl.config.placement import Placement
from loomrl.schema import Config


class Root(Config):
    """Frozen settings that fully describe a run or a service; `sha256` is their identity."""

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)
    """Name of the experiment; runs are named by it and a number."""
    store_url: StoreUrl = "sqlite:///loom.db"
    """URL of LoomDB: `sqlite:///FILE` or `postgresql://HOST/NAME`."""
    artifact_url: PathText = "artifacts"
    """Place for checkpoints and files: a folder or `s3://BUCKET/PREFIX`."""

    @property
    def sha256(self) -> str:
        """Content hash of the resolved experiment."""
        return content_hash(self.plain)


class Training(Root):
    """Settings that all trainings share."""

    seed: Seed = 0
    """Seed of all random choices."""
    placement: Placement = Placement()
    parent: str | None = None
    """Policy version with the run's initial weights: `RUN` or `RUN/20`; for language also a model's folder or
    `production:ENDPOINT`. With a data set, null means the policy that the data set was made for."""


class CustomAlgorithm(Config):
    """A custom algorithm: `entry_point` names a configuration class whose `of(experiment, run=…)` returns the RLlib
    configuration."""

    kind: Literal["custom"] = "custom"
    entry_point: EntryPoint
    """The configuration class as `package.module:Class`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The algorithm's own settings."""


class WandB(Config):
    """Weights & Biases; offline works without an account or a network."""

    project: str = "loomrl"
    """The project's name."""
    mode: Literal["online", "offline"] = "offline"
    """`offline` writes to a local folder, `online` sends."""


class Records(Config):
    """Logs of a run."""

    folder: PathText = "runs"
    """Folder for metrics and reports, with a subfolder per run."""
    wandb: WandB | None = None
