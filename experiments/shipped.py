"""Experiment files by path, or by their shipped name."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from loomrl.config import (
    AnyExperiment,
    AnyRoot,
    ControlExperiment,
    Experiment,
    LoopExperiment,
    RewardPipeline,
    ServingExperiment,
    parse_experiment,
    require_training,
)
from loomrl.config.rewards import ClassifierPart, RubricPart
from loomrl.errors import ConfigError, did_you_mean, unknown
from loomrl.files import is_file
from loomrl.load import load_any, parse_assignments, read_yaml
from loomrl.schema import Tree, merge

HOME = Path(__file__).parent
SWEEPS = HOME / "sweeps"
SUITES = HOME / "suites"
SCAFFOLD = HOME / "scaffold"
DEFAULT = "math"
TRAINED = "language/math_tiny"
CONTROL = "control/cartpole"
SERVED = "serving/language_tiny"
LOOP = "loop/tiny"
SHOWN = 5
"""Names in an error."""


def names() -> list[str]:
    """The names of the shipped experiments."""
    files = [file for file in HOME.rglob("*.yaml") if not {SWEEPS, SUITES, SCAFFOLD} & {*file.parents}]
    return sorted(str(file.relative_to(HOME).with_suffix("")) for file in files)


def names_in(folder: Path) -> list[str]:
    """The names of the files that are shipped in a folder."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def find_file(name: str, folder: Path, *, what: str) -> Path:
    """The file of this path, or the one of this name that is shipped in a folder."""
    if is_file(name):
        return Path(name)
    if name in names_in(folder):
        return folder / f"{name}.yaml"
    raise ConfigError(f"no such file, and {what} " + unknown("name", name, names_in(folder)))


def resolve(words: Sequence[str], *, default: str = DEFAULT) -> AnyExperiment:
    """The training experiment of `FILE… path=value…`; without a file, the default one."""
    return require_training(resolve_any(words, default=default))


def assumed(words: Sequence[str], *, default: str = DEFAULT) -> str | None:
    """The note on the assumed experiment; None if an experiment or run is named."""
    from loomrl.experiments.policies import is_control, is_served
    from loomrl.inference.gguf import is_model

    files = [word for word in words if "=" not in word]
    policies = [file for file in files if is_model(file) or is_control(file) or is_served(file)]
    if len(policies) < len(files) or {"environments", "environment"} & {word.partition("=")[0] for word in words}:
        return None
    default = CONTROL if any(map(is_control, files)) else _default(words, default)
    return f"no experiment was named, so it is {default}" + " with these settings" * (len(files) < len(words))


def unnamed_policy(experiment: AnyExperiment) -> str:
    """Whom an evaluation judges where no policy is named."""
    if isinstance(experiment, ControlExperiment):
        return "random"
    kind = experiment.policy.kind
    return "the environments' oracle, which knows the answers" if kind == "oracle" else f"the experiment's own: {kind}"


def _default(words: Sequence[str], default: str) -> str:
    """The experiment without a file: a shipped one of the kind that is asked for."""
    kinds = {"kind=control": CONTROL, "kind=serving": SERVED, "kind=loop": LOOP}
    return next((shipped for kind, shipped in kinds.items() if kind in words), default)


def resolve_any(words: Sequence[str], *, default: str = DEFAULT) -> AnyRoot:
    """Like `resolve`, also for services and loops."""
    files = [word for word in words if "=" not in word]
    assignments = [word for word in words if "=" in word]
    files = files or [_default(words, default)]
    return load_any([experiment_file(name) for name in files], assignments, complete=_with_training)


def resolve_loop(words: Sequence[str]) -> LoopExperiment:
    """The loop of `FILE path=value…`."""
    experiment = resolve_any(words, default=LOOP)
    if not isinstance(experiment, LoopExperiment):
        raise ConfigError(
            f"experiment {experiment.name!r} is of kind {experiment.kind}. Name one of kind loop: {LOOP}."
        )
    return experiment


def _with_training(tree: Tree) -> Tree:
    """A loop's settings with its whole training: from a name or a file, or from settings over those of `base`."""
    given = tree.get("training")
    if tree.get("kind") != "loop" or given is None:
        return tree
    if isinstance(given, str):
        given = {"base": given}
    if not isinstance(given, Mapping):
        raise ConfigError(f"training={given!r}: name a file or a shipped experiment, or write one here.")
    base = given.get("base")
    under = Experiment.defaults() if base is None else merge(Experiment.defaults(), read_yaml(experiment_file(base)))
    rest = {name: value for name, value in given.items() if name != "base"}
    return {**tree, "training": merge(under, {"name": tree.get("name"), **rest})}


def resolve_rewards(experiment: str | None, assignments: Sequence[str]) -> RewardPipeline:
    """The pipeline of an experiment of serving, or the default one, with `path=value…` of its own settings."""
    settings = RewardPipeline.defaults()
    if experiment is not None:
        served = resolve_any([experiment])
        if not isinstance(served, ServingExperiment):
            raise ConfigError(
                f"experiment {served.name!r} trains a policy. Name one of kind serving: its `rewards` are the pipeline."
            )
        settings = served.rewards.plain
    return RewardPipeline.parse(merge(settings, parse_assignments(assignments)), origin="rewards")


def resolve_judge(experiment: str, part: str | None, assignments: Sequence[str]) -> RubricPart | ClassifierPart:
    """The rubric or classifier of this name among an experiment's `rewards.parts`, or the only one."""
    found = resolve_any([experiment, *assignments])
    if not isinstance(found, Experiment | ServingExperiment):
        raise ConfigError(f"experiment {found.name!r} is of kind {found.kind}, which has no judges.")
    judges = {one.name: one for one in found.rewards.parts if isinstance(one, RubricPart | ClassifierPart)}
    if not judges:
        raise ConfigError(f"experiment {found.name!r} has no rubric and no classifier among its rewards.parts.")
    if part is None and len(judges) > 1:
        raise ConfigError(f"experiment {found.name!r} has several judges: say which with --part {'|'.join(judges)}.")
    if part is not None and part not in judges:
        raise ConfigError(unknown("part", part, judges))
    return judges[part] if part is not None else next(iter(judges.values()))


def resolve_rubric(experiment: str, part: str | None, assignments: Sequence[str]) -> RubricPart:
    """The same, if it is a rubric, about whose criteria people can be asked."""
    found = resolve_judge(experiment, part, assignments)
    if not isinstance(found, RubricPart):
        raise ConfigError(f"part {found.name!r} is a classifier, which has no criteria to ask people about.")
    return found


def resolve_language(words: Sequence[str], *, default: str = DEFAULT) -> Experiment:
    """Like `resolve`, for language policies only."""
    experiment = resolve(words, default=default)
    if isinstance(experiment, ControlExperiment):
        raise ConfigError(f"experiment {experiment.name!r} is one of control; this takes one of a language policy.")
    return experiment


def judged_words(
    words: Sequence[str], policies: Sequence[str], *, env: str | None = None
) -> tuple[AnyExperiment, list[str]]:
    """The experiment and the policies to evaluate; a first word that is a run, a model's folder or on a server is a
    policy.

    Environments other than the file's or the run's give the experiment their own name, unless it is given one.
    """
    experiment, judged = _resolve_judged(words, policies)
    if env is not None:
        control = isinstance(experiment, ControlExperiment)
        experiment = experiment.override({"environment": {"id": env}} if control else {"environments": [{"id": env}]})
    kept = [word for word in words if "=" not in word or not word.startswith("environment")]
    if any(word.startswith("name=") for word in words) or (env is None and kept == list(words)):
        return experiment, judged
    names = _environments(experiment)
    if names != _environments(_resolve_judged(kept, policies)[0]):
        experiment = experiment.override({"name": re.sub(r"[^\w.-]+", "-", "-".join(names))[:80]})
    return experiment, judged


def _environments(experiment: AnyExperiment) -> list[str]:
    """The names of its environments."""
    if isinstance(experiment, ControlExperiment):
        from loomrl.control.environment import label  # with Gymnasium; to show an experiment needs neither

        ids = [label(experiment.environment)]
    else:
        ids = [each.id for each in experiment.environments]
    return [id.rpartition(":")[2].partition("@")[0] for id in ids]


def _resolve_judged(words: Sequence[str], policies: Sequence[str]) -> tuple[AnyExperiment, list[str]]:
    first = next((word for word in words if "=" not in word), None)
    from loomrl.inference.gguf import is_model

    if first is None or first in names() or (is_file(first) and not is_model(first)):
        return resolve(words), list(policies)
    from loomrl.experiments.policies import is_control, is_served
    from loomrl.run.version import experiment_of, find_version
    from loomrl.store import open_store
    from loomrl.store.runs import RUNS

    rest = [word for word in words if word != first]
    if is_model(first) or is_control(first) or is_served(first):
        return resolve(rest, default=CONTROL if is_control(first) else DEFAULT), [first, *policies]
    store_url = resolve([word for word in rest if word.startswith("store_url=")]).store_url
    with open_store(store_url) as db:
        version = find_version(first, db)
        if version is None:
            runs = [run.id for run in RUNS.latest(db, limit=SHOWN)]
            raise ConfigError(
                f"{first!r} is no experiment, no run in {store_url}, and no folder of a policy."
                f"{did_you_mean(first, [*names(), *runs])} Latest runs: {', '.join(runs) or 'none'} (`loomrl runs`). "
                f"Experiments: {', '.join(names()[:SHOWN])} and {len(names()) - SHOWN} more (tab completes them)."
            )
        experiment = experiment_of(version, db)
    merged = merge(experiment.plain, parse_assignments(rest))
    return parse_experiment(merged, origin=f"run {first}"), [first, *policies]


def experiment_file(name: str) -> Path:
    """The file itself, or the shipped one of this name."""
    if is_file(name):
        beside = str(Path(name).resolve().parent)
        if beside not in sys.path:
            sys.path.append(beside)  # code that the file names may lie beside it
        return Path(name)
    if name in names():
        return HOME / f"{name}.yaml"
    raise ConfigError("no such file, and experiment " + unknown("name", name, names()))
