"""Policies by name: a scripted one, user code, a model's folder, or a run's version."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from loomrl.config import (
    AnyExperiment,
    ControlExperiment,
    CustomPolicy,
    LanguagePolicy,
    OpenAIPolicy,
    PolicyChoice,
    Sampling,
    ScriptedPolicy,
)
from loomrl.errors import ConfigError, unknown
from loomrl.experiments.algorithms import open_algorithm
from loomrl.files import is_file
from loomrl.gym import policy
from loomrl.gym.policy import PolicyFactory
from loomrl.inference.gguf import LOCAL, is_model, model_folder
from loomrl.run.version import copied, experiment_of, find_version
from loomrl.store import LoomDB
from loomrl.store.runs import RUNS
from loomrl.types import PolicyVersion

SCRIPTED: tuple[str, ...] = get_args(ScriptedPolicy.model_fields["kind"].annotation)
FORMS = [
    "pkg.module:callable",
    "RUN",
    "RUN/NUMBER",
    "a model's folder",
    "FILE.gguf",
    "package:NAME",
    "http://server/v1#MODEL",
]
CONTEXT = 1024
ANSWER = 256
"""Default token limits of an episode, and of an action in it, for models that no run of LoomRL made."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy with its printed name; `version` is its id in LoomDB, if it has one."""

    name: str
    choice: PolicyChoice
    version: str | None = None


def find_policy(
    text: str,
    db: LoomDB,
    *,
    temperature: float = 0.0,
    trust_remote_code: bool = False,
    artifact_url: str = LOCAL,
) -> NamedPolicy:
    """`oracle`, `pkg.module:callable`, a model, `RUN` (its last version), `RUN/NUMBER`, `http://server/v1#MODEL`.

    `trust_remote_code`: Python files in a folder may run. A run's versions have the setting of their run.
    `artifact_url`: where a GGUF file is converted to.
    """
    if is_served(text):
        return NamedPolicy(text, _find_served(text, temperature))
    if is_model(text):
        loose = _loose(model_folder(text, artifact_url), temperature)
        return NamedPolicy(text, loose.model_copy(update={"trust_remote_code": trust_remote_code}))
    if ":" in text:
        return NamedPolicy(text, CustomPolicy.parse({"entry_point": text}, origin=f"policy {text!r}"))
    if text in SCRIPTED:
        return NamedPolicy(text, ScriptedPolicy.parse({"kind": text}))
    version = find_version(text, db)
    if version is None:
        raise ConfigError("policy " + unknown("name", text, [*SCRIPTED, *FORMS, *(run.id for run in RUNS.latest(db))]))
    return NamedPolicy(text, _find_trained(version, db, temperature), version.id)


def open_policy(choice: PolicyChoice) -> PolicyFactory:
    """The factory that `choice` names, for agents too; torch is imported only for policies with weights."""
    from loomrl.serving.agents import AgentGateway  # with a server

    if isinstance(choice, LanguagePolicy):
        from loomrl.inference import policy as inference
        from loomrl.serving.speech import LanguageServedPolicy

        voice = inference.open_voice(choice)
        return AgentGateway().serving(inference.speakers(voice), LanguageServedPolicy(voice), sampling=choice.sampling)
    if isinstance(choice, OpenAIPolicy):
        from loomrl.inference.remote.server import speakers_on_server

        return AgentGateway().serving(speakers_on_server(choice))
    return AgentGateway().serving(policy.open_policy(choice))


def meet(choice: PolicyChoice) -> None:
    """Raise an error at once if the policy's server does not answer."""
    if isinstance(choice, OpenAIPolicy):
        from loomrl.inference.remote import server as server_policy

        server_policy.meet(choice)


def is_served(text: str) -> bool:
    """True if this is the address of a server."""
    return text.startswith(("http://", "https://"))


def is_control(text: str) -> bool:
    """True if this is the folder of an exported control policy, or of several that act in the same worlds."""
    return any(is_file(f"{text}/{name}") for name in ("policy.json", "policies.json"))


def _loose(folder: Path, temperature: float) -> LanguagePolicy:
    """A model known only by its folder."""
    try:
        config = json.loads((folder / "config.json").read_text())
        longest = config.get("text_config", config).get("max_position_embeddings", CONTEXT)  # one that sees has parts
        context = min(int(longest), CONTEXT)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{folder}/config.json is none of a Hugging Face model: {error}. Is it whole?") from None
    return LanguagePolicy(
        path=str(folder),
        context=context,
        sampling=Sampling(temperature=temperature, max_tokens=ANSWER),
    )


def _find_served(text: str, temperature: float) -> OpenAIPolicy:
    """The model behind `#` on the server before it."""
    url, _, model = text.partition("#")
    if not model:
        raise ConfigError(f"policy={text!r}: which model? Write {url}#MODEL, by its name there ({url}/models).")
    sampling = Sampling(temperature=temperature, max_tokens=ANSWER)
    return OpenAIPolicy.parse({"url": url, "model": model, "sampling": sampling}, origin=f"policy {text}")


def refuse_full(folder: Path) -> None:
    """A ConfigError if there is anything in this folder."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{str(folder)!r} is not empty: name another folder.")


def exported(
    text: str,
    db: LoomDB,
    folder: Path,
    *,
    onnx: bool = False,
    stable_baselines: bool = False,
    preference: Mapping[str, float] | None = None,
) -> str:
    """Copy this version's policy into a folder of its own; returns the version's id.

    A language policy that reads a preference may be given one for good.
    """
    version = find_version(text, db)
    if version is None:
        raise ConfigError(
            "policy " + unknown("name", text, ["RUN", "RUN/NUMBER", *(run.id for run in RUNS.latest(db))])
        )
    refuse_full(folder)
    checkpoint = copied(version, db)
    inside = checkpoint / "policy"
    if not inside.is_dir():
        _make_whole(checkpoint, version, db)
    asked = [name for name, given in (("--onnx", onnx), ("--stable-baselines", stable_baselines)) if given]
    if asked and not inside.is_dir():
        raise ConfigError(f"{asked[0]}: {version.id} is a language policy; only those of control are written so.")
    if preference is not None:
        if inside.is_dir():
            raise ConfigError(
                f"--preference: {version.id} is a policy of control: it takes one with every observation."
            )
        from loomrl.inference.chat import fix_preference

        fix_preference(checkpoint / "model", preference)
    shutil.copytree(inside if inside.is_dir() else checkpoint / "model", folder, dirs_exist_ok=True)
    for part, into in (("adapter", folder / "adapter"), ("film", folder)):
        if (checkpoint / part).is_dir():
            shutil.copytree(checkpoint / part, into, dirs_exist_ok=True)
    shutil.rmtree(checkpoint.parent)
    if asked:
        from loomrl.control import stable_baselines as theirs
        from loomrl.control.team_policy import load_each

        for own, policy in load_each(folder).items():
            if onnx:
                policy.to_onnx(own / "policy.onnx")
            if stable_baselines:
                theirs.write(policy, own)
    return version.id


def _make_whole(checkpoint: Path, version: PolicyVersion, db: LoomDB) -> Path:
    from loomrl.inference.merged import whole_model

    algorithm = open_algorithm(experiment_of(version, db)).algorithm
    return whole_model(checkpoint, trust_remote_code=algorithm.model.trust_remote_code)


def _find_trained(version: PolicyVersion, db: LoomDB, temperature: float) -> LanguagePolicy:
    experiment = experiment_of(version, db)
    if isinstance(experiment, ControlExperiment):
        raise ConfigError(f"policy {version.id!r} is one of control: judge it on the experiment it was made with.")
    return language_policy(experiment, _make_whole(copied(version, db), version, db), temperature, version.number)


def language_policy(experiment: AnyExperiment, folder: Path, temperature: float, number: int) -> LanguagePolicy:
    """A version of a run whose whole model is in a folder, sampling as in training but for the temperature."""
    algorithm = open_algorithm(experiment).algorithm
    return LanguagePolicy(
        path=str(folder),
        trust_remote_code=algorithm.model.trust_remote_code,
        context=algorithm.model.context,
        sampling=algorithm.sampling.model_copy(update={"temperature": temperature}),
        version=number,
    )
