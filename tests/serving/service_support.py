"""Runs of tiny policies on record, and the processes of a service on one event loop."""

import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import Experiment, ServingExperiment
from loomrl.inference.model import save_model
from loomrl.inference.weights.adapter import NARROW
from loomrl.inference.weights.sealed import identify
from loomrl.load import dump
from loomrl.run.version import BASE_FILE
from loomrl.serving.deployment.policies import PolicyProcess
from loomrl.serving.deployment.process import FrontProcess, GatewayProcess
from loomrl.serving.deployment.station import EndpointEngines, Station, arms_of, set_arms
from loomrl.store import LoomDB, open_store
from loomrl.store.policies import record_policy
from loomrl.store.runs import Run, start_run
from loomrl.types import PolicyVersion
from tests.inference.sample_models import tiny_model, tiny_tokenizer


def start(db: LoomDB, folder: Path, run: str = "run", *, environments: Mapping[str, str] | None = None) -> Experiment:
    """A run of a language policy without a version yet."""
    settings = {"name": "x", "store_url": f"sqlite:///{folder}/loom.db", "artifact_url": f"{folder}/artifacts"}
    model = {"context": 128, "path": str(folder)}
    experiment = Experiment.parse({**settings, "algorithm": {"kind": "grpo", "model": model}})
    start_run(
        db,
        Run(
            id=run,
            name="x",
            kind="train",
            experiment=experiment.sha256,
            resolved=dump(experiment),
            code="c",
            environments=environments or {},
            started_at=1.0,
        ),
    )
    return experiment


@dataclass(frozen=True)
class PretrainedBase:
    """A base to which versions are additions."""

    model: PreTrainedModel = field(default_factory=tiny_model)
    tokenizer: PreTrainedTokenizerBase = field(default_factory=tiny_tokenizer)
    claims: str = ""
    """The identity that checkpoints say, if not its own."""

    def save(self, additions: Mapping[str, Tensor], folder: Path, artifact_url: str) -> None:
        """Additions as training leaves them (`save_adapter`)."""
        identity = self.claims or identify(self.model.state_dict().items())
        artifacts = open_artifacts(artifact_url)
        if not artifacts.exists(f"models/{identity}"):
            save_model(self.model, None, folder / "base")
            artifacts.put_folder(f"models/{identity}", folder / "base")
            shutil.rmtree(folder / "base")
        self.tokenizer.save_pretrained(folder / "model")
        (folder / "adapter").mkdir()
        rank = min(len(tensor) for name, tensor in additions.items() if name.endswith(NARROW))
        settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank}
        (folder / "adapter/adapter_config.json").write_text(json.dumps(settings))
        own = {f"base_model.model.{name}": tensor for name, tensor in additions.items()}
        save_file(own, folder / "adapter/adapter_model.safetensors")
        about = {"artifact": f"models/{identity}", "identity": identity, "dtype": "float32"}
        (folder / BASE_FILE).write_text(json.dumps(about))


def record(
    db: LoomDB,
    experiment: Experiment,
    number: int,
    *,
    run: str = "run",
    best: int | None = None,
    additions: Mapping[str, Tensor] | None = None,
    base: PretrainedBase | None = None,
) -> str:
    """A version with weights of its own, or additions to a base, as training leaves it: a checkpoint, pruned as
    training does, and a row.
    """
    made = Path(experiment.artifact_url).parent / f"made-{number}"
    if additions is None:
        save_model(tiny_model(seed=number), tiny_tokenizer(), made / "model")
    else:
        (base or PretrainedBase()).save(additions, made, experiment.artifact_url)
    kept = {"best": number if best is None else best, "last": number}
    (made / "line.json").write_text(json.dumps({"kept": kept}))
    checkpoints = Checkpoints(open_artifacts(experiment.artifact_url), run)
    checkpoints.put(number, made)
    shutil.rmtree(made)
    version = PolicyVersion(
        id=f"{run}/{number}",
        number=number,
        url=checkpoints.url(number),
        run=run,
        algorithm="grpo",
        experiment=experiment.sha256,
        parent=None,
        data={},
        code="c",
        created_at=float(number),
    )
    record_policy(db, version)
    checkpoints.prune(kept.values())
    return version.id


class Service:
    """Policies, gateways and front, on this event loop."""

    def __init__(self, experiment: ServingExperiment) -> None:
        self.station = Station(experiment=experiment, token="secret")
        self.policies: list[PolicyProcess] = []
        self.gateways = [GatewayProcess(self.station) for _ in range(experiment.gateways.count)]
        self.front = FrontProcess(self.station)
        self.url = f"http://127.0.0.1:{experiment.port}"

    async def start(self) -> None:
        experiment = self.station.experiment
        with open_store(experiment.store_url) as db:
            arms = arms_of(experiment, db)
            set_arms(db, experiment.endpoint, arms)
            engines = EndpointEngines(experiment, db).read()
        for engine in engines or ():
            await self.add(engine)
        if not self.station.has_front:
            del self.gateways[1:]
        for each in (*self.gateways, self.front):
            await each.start()

    async def add(self, engine: str) -> PolicyProcess:
        self.policies.append(PolicyProcess(self.station, engine))
        await self.policies[-1].start()
        return self.policies[-1]

    async def stop(self) -> None:
        for each in (self.front, *self.gateways, *self.policies):
            await each.stop()


@asynccontextmanager
async def service(folder: Path, free_port: Callable[[], int], **settings: Any) -> AsyncIterator[Service]:
    """A service of the LoomDB in this folder."""
    tree = {
        "name": "x",
        "store_url": f"sqlite:///{folder}/loom.db",
        "artifact_url": f"{folder}/artifacts",
        "port": free_port(),
        **settings,
    }
    made = Service(ServingExperiment.parse(tree))
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
