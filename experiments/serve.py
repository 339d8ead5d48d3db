"""`loomrl serve`: from words to a service that answers, on a Ray of its own or on a cluster."""

import json
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loomrl.cluster.shared import refuse_unshared
from loomrl.config import AnyRoot, ServingExperiment
from loomrl.config.monitor import ActionCheck
from loomrl.config.placement import PER_CORE
from loomrl.errors import ConfigError
from loomrl.experiments.shipped import experiment_file, names
from loomrl.files import absolute_places, is_file
from loomrl.http.listen import open_door
from loomrl.inference.gguf import is_model, model_folder
from loomrl.load import load_any
from loomrl.own_ray import cluster_address
from loomrl.safety.open import open_action_rule, open_text_rule
from loomrl.serving.deployment.source import PolicySource, engine_of, fetch, source_of_arm
from loomrl.store import LoomDB, open_store
from loomrl.store.keys import KEYS, create_key

CANARY = 0.1
"""Share of each further policy on the command line."""
SCOPES = ("act", "feedback", "record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A service that answers, as it is told to people and programs."""

    url: str
    endpoint: str
    revision: int
    arms: list[dict[str, Any]]
    key: str | None
    """A new key, if callers need one and there was none."""
    curl: str
    experiment: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def resolve_serving(words: Sequence[str], *, settings: dict[str, Any], follow: str | None = None) -> ServingExperiment:
    """The experiment of `[FILE…] [WHAT…] [PATH=VALUE…]`; later wins. `settings` are options of the command line."""
    plain = [word for word in words if "=" not in word]
    assignments = [word for word in words if "=" in word]
    files = [word for word in plain if word in names() or (is_file(word) and word.endswith((".yaml", ".yml")))]
    arms = _arms([word for word in plain if word not in files], follow)
    given = [f"{path}={json.dumps(value)}" for path, value in settings.items() if value is not None]
    if arms:
        given.insert(0, f"arms={json.dumps(arms)}")
    if not files:
        if not arms and not any(word.startswith("arms") for word in assignments):
            raise ConfigError(
                "serve: say what to serve: a RUN, RUN/NUMBER, a model's folder, the folder of an exported control "
                "policy, or an experiment file of kind serving. Example: loomrl serve math-1"
            )
        given = ["kind=serving", f"name={settings.get('endpoint') or 'policy'}", *given]
    experiment: AnyRoot = load_any([experiment_file(name) for name in files], [*given, *assignments])
    if not isinstance(experiment, ServingExperiment):
        raise ConfigError(
            f"experiment {experiment.name!r} trains a policy; to serve what it made, name its run: loomrl serve RUN."
        )
    return experiment


def check_sources(experiment: ServingExperiment, db: LoomDB) -> list[PolicySource]:
    """The policies of all arms; a ConfigError for one that cannot be served, or settings that it has no use for."""
    sources = [source_of_arm(arm, db) for arm in experiment.arms]
    kinds = {source.kind for source in sources}
    if len(kinds) > 1:
        raise ConfigError("arms: an endpoint has either language policies or control policies, not both.")
    if kinds == {"control"} and experiment.engine != type(experiment).model_fields["engine"].default:
        raise ConfigError(
            f"engine.kind={experiment.engine.kind} has no effect: control policies have no engine. Leave it out."
        )
    record = experiment.record
    if kinds == {"language"} and record.rate != type(record).model_fields["rate"].default:
        raise ConfigError(
            f"record.rate={record.rate} has no effect: every call to a language policy is recorded, or none by "
            "record.mode=off. Leave it out."
        )
    _check_monitor(experiment, kinds)
    return sources


def _check_monitor(experiment: ServingExperiment, kinds: Collection[str]) -> None:
    """A ConfigError for rules that cannot be opened, or that nothing here would meet."""
    rules = experiment.monitor.rules
    if rules == type(experiment).model_fields["monitor"].default.rules:
        return
    for rule in rules:
        is_action = isinstance(rule.check, ActionCheck)
        if isinstance(rule.check, ActionCheck):
            open_action_rule(rule.check)
        else:
            open_text_rule(rule.check)
        if set(kinds) == {"language" if is_action else "control"}:
            about = "actions, and this endpoint answers in words" if is_action else "answers, and this endpoint acts"
            raise ConfigError(f"monitor: rule {rule.check.label!r} is about {about}. Leave it out.")


@contextmanager
def serving(experiment: ServingExperiment) -> Iterator[Served]:
    """A service that answers, until the context ends. A taken port is refused before anything slow begins."""
    began = time.monotonic()
    experiment = _settle(experiment)
    with open_store(experiment.store_url) as db:
        sources = check_sources(experiment, db)
        from loomrl.experiments.algorithms import ray_running

        replicas = experiment.replicas
        engines = {engine_of(source, experiment.engine, db) for source in sources}
        cpus = replicas.least * len(engines) * (1 if replicas.cpus is None else replicas.cpus)
        cpus += experiment.gateways.cpus * experiment.gateways.count
        with ray_running(_count(cpus), replicas.resources):
            from loomrl.serving.deployment.app import deploy, undeploy

            folders = {f"arms {source.key}": source.folder for source in sources if source.folder}
            refuse_unshared(store_url=experiment.store_url, artifact_url=experiment.artifact_url, paths=folders)
            deployed = deploy(experiment, alone=cluster_address() is None)
            try:
                key = _key(experiment, db)
                yield Served(
                    url=deployed.url,
                    endpoint=deployed.endpoint,
                    revision=deployed.revision,
                    arms=[asdict(arm) for arm in deployed.arms],
                    key=key,
                    curl=curl(deployed.url, experiment, body_for(sources[0], experiment.endpoint, db), key),
                    experiment=experiment.sha256,
                    seconds=time.monotonic() - began,
                )
            finally:
                undeploy(experiment.endpoint)


def wait_for_the_end() -> None:
    """Return at SIGINT; SIGTERM ends the process by SystemExit."""
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        return


def curl(url: str, experiment: ServingExperiment, body: Mapping[str, Any], key: str | None) -> str:
    """A command line that gets an answer."""
    from loomrl.serving.deployment.process import is_key_needed

    path = "/v1/chat/completions" if "messages" in body else "/v1/act"
    given = "'Authorization: Bearer " + key + "'" if key else '"Authorization: Bearer $LOOMRL_KEY"'
    head = f" -H {given}" if is_key_needed(experiment) else ""
    return f"curl {url}{path} -H 'Content-Type: application/json'{head} -d '{json.dumps(body)}'"


def body_for(source: PolicySource, endpoint: str, db: LoomDB) -> dict[str, Any]:
    """A request that the policy can answer."""
    if source.kind == "language":
        return {"model": endpoint, "messages": [{"role": "user", "content": "Hello"}]}
    files = fetch(source, db)
    try:
        space = json.loads((files.path / "policy.json").read_text())["observation_space"]
    finally:
        files.discard()
    parts = dict(space["spaces"]) if space["kind"] == "Dict" else {}
    from loomrl.control.preference import EARNED, PREFERENCE, SEEN

    if PREFERENCE not in parts:
        return {"model": endpoint, "observation": example(space)}
    weights = parts.pop(PREFERENCE)["shape"][0]
    parts.pop(EARNED, None)
    rest = {name: example(part) for name, part in parts.items()}
    observed = rest[SEEN] if set(rest) == {SEEN} else rest
    return {"model": endpoint, "observation": observed, "preference": [round(1 / weights, 6)] * weights}


def example(space: Mapping[str, Any]) -> Any:
    """A value of a space that is written as JSON."""
    match space["kind"]:
        case "Box":
            return np.zeros(space["shape"]).tolist()
        case "Discrete":
            return space["start"]
        case "MultiDiscrete":
            return space["start"]
        case "MultiBinary":
            return np.zeros(space["n"], int).tolist()
        case "Dict":
            return {name: example(part) for name, part in space["spaces"]}
        case _:
            return [example(part) for part in space["spaces"]]


def _arms(what: Sequence[str], follow: str | None) -> list[dict[str, Any]]:
    """The first is stable, each further one a canary."""
    found: list[dict[str, Any]] = [{"what": follow, "follow": "newest"}] if follow else []
    found += [{"what": each} for each in what]
    for number, arm in enumerate(found):
        if number:
            arm |= {"role": "canary", "share": CANARY, "name": "canary" if number == 1 else f"canary-{number}"}
        else:
            arm["share"] = round(1 - CANARY * (len(found) - 1), 9)
    return found


def _settle(experiment: ServingExperiment) -> ServingExperiment:
    """With a port that is free, and absolute paths: the processes of a service have other folders.

    The head of a cluster may be another machine: whether a port is free there, its front says.
    """
    paths: dict[str, Any] = {}
    if cluster_address() is None or experiment.port == 0:
        door = open_door(experiment.host, experiment.port, token="callers need keys")
        for listener in door.listeners:
            listener.close()
        paths["port"] = door.port
    paths |= absolute_places(experiment.store_url, experiment.artifact_url)
    if experiment.tls is not None:
        for name, file in experiment.tls.model_dump().items():
            paths[f"tls.{name}"] = str(Path(file).expanduser().absolute())
    if "artifact_url" in paths:
        for number, arm in enumerate(experiment.arms):
            if is_model(arm.what):
                paths[f"arms.{number}.what"] = str(model_folder(arm.what, paths["artifact_url"]).absolute())
    return experiment.override(paths)


def _count(cpus: float) -> int:
    """CPUs that Ray has, if it is ours: no more than PER_CORE of each core, which Ray then says."""
    return min(int(-(-cpus // 1)), PER_CORE * (os.cpu_count() or 1))


def _key(experiment: ServingExperiment, db: LoomDB) -> str | None:
    """A new key, if callers need one and there is none."""
    from loomrl.serving.deployment.process import is_key_needed

    now = time.time()
    if not is_key_needed(experiment) or any(key.holds(now) for key in KEYS.latest(db, limit=1000)):
        return None
    return create_key(db, f"first of {experiment.endpoint}", scopes=SCOPES, at=now)[0]
