"""The model card of an exported version, with the header that Hugging Face reads: where it acts, how good it is, how it
was trained, how to use it.
"""

import json
from pathlib import Path
from typing import Any

from loomrl.config import AnyExperiment, ControlExperiment
from loomrl.control.episode import GIF, STEPS, FilmedEpisode
from loomrl.load import dump, to_yaml
from loomrl.record.catalogue import evaluation_summary
from loomrl.run.version import experiment_of
from loomrl.store import LoomDB
from loomrl.store.policies import EVALUATIONS, Evaluation
from loomrl.store.runs import POLICIES, RUNS
from loomrl.store.view.metrics import sample_metrics
from loomrl.telemetry.metric import Metric
from loomrl.types import PolicyVersion

CARD = "README.md"
CURVE = "curve.png"
POINTS = 600
CURVES = {
    "return": {"training": Metric.RETURN, "greedy evaluation": Metric.RETURN_EVALUATED},
    "success": {"training": Metric.SUCCESS, "evaluation": Metric.EVALUATED},
}
USE = {
    "control": """from pathlib import Path

from loomrl.control.policy import ControlPolicy

policy = ControlPolicy.load(Path("."))
state = policy.state()  # its memory at the beginning of an episode; None without one
action = policy.act(observation, state=state)
""",
    "team": """from pathlib import Path

from loomrl.control.team_policy import TeamPolicy

policies = TeamPolicy.load(Path(".")).policies
actions = {agent: policies[name_of(agent)].act(shown) for agent, shown in observations.items()}
""",
    "language": """from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".")
""",
}


def write_card(id: str, db: LoomDB, folder: Path) -> None:
    """Write the card into the folder of this exported version, unless there is one; a control policy that has no film
    plays for one, if its environment is installed here.
    """
    if (folder / CARD).exists():
        return
    version = POLICIES.require(db, id)
    experiment = experiment_of(version, db)
    if isinstance(experiment, ControlExperiment) and not (folder / GIF).is_file():
        from loomrl.control.team_policy import load_acting
        from loomrl.experiments.evaluate_control import keep_film

        keep_film(load_acting(folder), experiment, folder)
    evaluation = next(iter(EVALUATIONS.latest(db, policy=id, limit=1)), None)
    is_drawn = _draw_curve(version, db, experiment, folder / CURVE)
    header = to_yaml(_header(version, experiment, evaluation))
    body = _body(version, db, experiment, evaluation, folder, is_drawn=is_drawn)
    (folder / CARD).write_text(f"---\n{header}---\n\n{body}", encoding="utf-8")


def _environments(experiment: AnyExperiment) -> list[str]:
    if isinstance(experiment, ControlExperiment):
        from loomrl.control.environment import label

        return [label(experiment.environment)]
    return [each.id for each in experiment.environments]


def _header(version: PolicyVersion, experiment: AnyExperiment, evaluation: Evaluation | None) -> dict[str, Any]:
    names = _environments(experiment)
    is_control = isinstance(experiment, ControlExperiment)
    header: dict[str, Any] = {"library_name": "loomrl" if is_control else "transformers"}
    header["tags"] = ["reinforcement-learning", "loomrl", version.algorithm, *names]
    header["model_name"] = version.id
    if evaluation is None:
        return header
    found = evaluation_summary(evaluation)
    if found["mean"] is None:
        return header
    name = "mean_reward" if found["what"] == "return" else "success"
    deviation = evaluation.report["overall"].get("deviation")
    value = f"{found['mean']:.2f} +/- {deviation:.2f}" if deviation is not None else round(found["mean"], 4)
    header["model-index"] = [
        {
            "name": version.id,
            "results": [
                {
                    "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                    "dataset": {"name": ", ".join(names), "type": names[0]},
                    "metrics": [{"type": name, "value": value, "name": name, "verified": False}],
                }
            ],
        }
    ]
    return header


def _body(
    version: PolicyVersion,
    db: LoomDB,
    experiment: AnyExperiment,
    evaluation: Evaluation | None,
    folder: Path,
    *,
    is_drawn: bool,
) -> str:
    kind = "control" if isinstance(experiment, ControlExperiment) else "language"
    if (folder / "policies.json").is_file():
        kind = "team"
    run = RUNS.require(db, version.run)
    parts = [
        f"# {version.id}",
        f"A policy for {', '.join(_environments(experiment))}, trained by {version.algorithm} with LoomRL.",
    ]
    if evaluation is not None and (found := evaluation_summary(evaluation))["mean"] is not None:
        mean, low, high = (found["texts"][name] for name in ("mean", "low", "high"))
        level = f"{evaluation.report.get('confidence', 0.95):.0%}"
        parts.append(
            f"| | mean | {level} interval | episodes |\n|---|---|---|---|\n"
            f"| {found['what']} | {mean} | {low} to {high} | {found['count']} |"
        )
    if (folder / STEPS).is_file():
        episode = FilmedEpisode.parse(json.loads((folder / STEPS).read_bytes()), origin=STEPS)
        parts.append(
            f"![An episode]({GIF})\n\nAn episode of {len(episode.rewards):,} steps with a return of "
            f"{episode.total:.2f}."
        )
    if is_drawn:
        parts.append(f"## Training\n\n![Curve of the training]({CURVE})")
    origin = {
        "run": version.run,
        "code": version.code,
        "experiment": version.experiment,
        "environments": ", ".join(f"{name} {hash[:12]}" for name, hash in run.environments.items()),
        "made from": version.parent,
    }
    parts.append("\n".join(f"- {name}: `{value}`" for name, value in origin.items() if value))
    parts.append(f"## Use\n\n```python\n{USE[kind]}```")
    parts.append(f"## Settings\n\n```yaml\n{dump(experiment)}```\n")
    return "\n\n".join(parts)


def _draw_curve(version: PolicyVersion, db: LoomDB, experiment: AnyExperiment, file: Path) -> bool:
    """Draw the run up to this version; False if there is nothing to draw."""
    what = "return" if isinstance(experiment, ControlExperiment) else "success"
    _, rows = sample_metrics(db, version.run, most=POINTS)
    before = [row for row in rows if row.step <= version.number]
    lines = {
        name: [(row.step, value) for row in before if (value := row.values.get(metric)) is not None]
        for name, metric in CURVES[what].items()
    }
    if max(map(len, lines.values())) < 2:
        return False
    from loomrl.telemetry.plot import plot_curves

    plot_curves(file, lines, x="environment steps" if what == "return" else "updates", y=what)
    return True
