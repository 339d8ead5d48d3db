from pathlib import Path

import pytest

from loomrl.config import ServedArm, ServingExperiment
from loomrl.errors import ConfigError
from loomrl.experiments.shipped import resolve, resolve_any
from loomrl.load import dump, load, load_any

NAMED = ["kind=serving", "name=x", "arms=[{what: math-1}]"]


def test_python_yaml_and_assignments_end_in_the_same_experiment(tmp_path: Path) -> None:
    python = ServingExperiment(name="x", arms=(ServedArm(what="math-1"),), port=9000)
    (tmp_path / "x.yaml").write_text("kind: serving\nname: x\narms: [{what: math-1}]\nport: 9000\n")
    command = load_any([], [*NAMED, "port=9000"])
    assert python == command == load_any([tmp_path / "x.yaml"])
    (tmp_path / "resolved.yaml").write_text(dump(python))
    assert load_any([tmp_path / "resolved.yaml"]).sha256 == python.sha256 == command.sha256


def test_every_setting_changes_the_identity() -> None:
    changes = ["port=1", "gateways.count=3", "engine.slots=2", "record.mode=after", "keys=required", "replicas.most=2"]
    changes += ["arms.0.follow=newest", "origins=['https://a.example']", "limits.body_mb=1", "endpoint=y"]
    assert len({load_any([], [*NAMED, change]).sha256 for change in ("port=8000", *changes)}) == len(changes) + 1


@pytest.mark.parametrize("name", ["language_tiny", "control", "canary"])
def test_shipped_files_are_sound(name: str) -> None:
    assert isinstance(resolve_any([f"serving/{name}"]), ServingExperiment)


def test_training_refuses_an_experiment_of_serving() -> None:
    for words in (["serving/control"], NAMED):
        with pytest.raises(ConfigError, match=r"is one of serving.*`loomrl serve` starts it"):
            resolve(words)
    with pytest.raises(ConfigError, match="one of serving"):
        load([], NAMED)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("arms=[]", "at least 1"),
        ("arms=[{what: a}, {what: b}]", "stable is there twice"),
        ("arms=[{what: a}, {what: b, role: canary, share: 0.1}]", r"sum to 1\.1"),
        ("arms=[{what: a, role: canary}]", "one stable arm.*none"),
        ("replicas.least=2", "must not be above most=1"),
        ("replicas.load=8", "load has no effect"),
        ("gateways.count=1", "greater than or equal to 2"),
        ("record={mode: off, retention_days: 3}", "retention_days has no effect"),
        ("record={mode: off, archive_days: 3}", "archive_days has no effect"),
        ("origins=['*']", "origins"),
        ("engine={kind: openai, url: 'http://h/v1', model: m}", None),
        ("port=70000", "less than or equal to 65535"),
    ],
)
def test_settings_that_cannot_serve_are_refused(given: str, said: str | None) -> None:
    if said is None:
        several = "arms=[{what: a, share: 0.5}, {what: b, role: canary, share: 0.5}]"
        for also, reason in ((several, "leave one"), ("arms.0.follow=best", "follow"), ("replicas.gpus=1", "gpus")):
            with pytest.raises(ConfigError, match=reason):
                load_any([], [*NAMED, given, also])
        return
    with pytest.raises(ConfigError, match=said):
        load_any([], [*NAMED, given])
