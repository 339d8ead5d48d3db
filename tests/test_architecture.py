"""DESIGN §3, read off the imports: direction, light front doors, backend names only where they are opened."""

import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.imports import ROOT, SOURCES, TOP, imports, module, nearest

MAY_IMPORT = {
    "loomrl": {"loomrl"},
    "__main__": {"experiments"},  # hands over to the commands
    "envs": {"loomrl", "envs"},
    "algorithms": {"loomrl", "algorithms"},
    "cluster": {"loomrl", "cluster"},
    "experiments": set(TOP),
}
"""By folder of the top level. All but the first are imported as `loomrl.envs` and so on."""
LAYERS = [
    "canonical",
    "files",
    "pickled",
    "picture",
    "threshold",
    "types",
    "errors",
    "process",
    "own_ray",
    "named",
    "schema",
    "config",
    "load",
    "safety",
    "store",
    "artifacts",
    "parquet",
    "checkpoints",
    "run",
    "gym",
    "curriculum",
    "rewards",
    "http",
    "observability",
    "hub",
    "inference",
    "control",
    "evaluation",
    "release",
    "serving",
    "feedback",
    "bus",
    "analytics",
    "coordinator",
    "telemetry",
    "record",
    "console",
]
"""Inside loomrl a module imports from its own layer and those before it."""

OPENED_IN = {
    "psycopg": {"loomrl/store/db.py"},
    "sqlite3": {"loomrl/store/db.py", "envs/tool/corpus.py"},
    "alembic": {"loomrl/store/migration.py", "loomrl/store/migrations/*", "loomrl/store/migrations/versions/*"},
    "sqlalchemy": {
        "loomrl/store/*",
        "loomrl/store/service/*",
        "loomrl/store/view/*",
        "loomrl/store/migrations/versions/*",
        "loomrl/hub/*",
        "loomrl/hub/atropos/*",
    },
    "pyarrow": {"loomrl/artifacts.py", "loomrl/parquet.py"},
    "nats": {"loomrl/bus/*"},
    "clickhouse_connect": {"loomrl/analytics/engine.py"},
    "chdb": set(),
    "vllm": {"loomrl/inference/vllm/*", "experiments/bench/vllm.py"},
    "wandb": {"loomrl/telemetry/sink.py"},
    "peft": {"algorithms/language/lora.py"},
    "math_verify": {"envs/math/verify.py"},
    "PIL": {
        "loomrl/control/film.py",
        "envs/multimodal/canvas.py",
        "envs/multimodal/plot.py",
        "loomrl/inference/vision.py",
        "loomrl/serving/dialect/conversation.py",
    },
    "sympy": set(),
    "matplotlib": {"loomrl/telemetry/plot.py", "experiments/release_picture.py", "experiments/notebook/pipeline.py"},
    "pettingzoo": {"envs/teamwork/parallel.py", "loomrl/gym/adapters/pettingzoo.py"},
    "pyspiel": {"envs/game/spiel.py"},
    "open_spiel": set(),
    "minari": {"loomrl/control/logged.py"},
    "moocore": {"loomrl/evaluation/front.py"},
    "babel": {"envs/language/locale.py"},
    "phonenumbers": {"loomrl/safety/redaction/phone.py"},
    "mo_gymnasium": {"envs/minecart.py"},
    "onnx": {"loomrl/control/policy.py"},
    "optuna": set(),
    "verifiers": {"loomrl/gym/adapters/taskset.py"},
    "reasoning_gym": {"loomrl/gym/adapters/reasoning_gym.py"},
    "starlette": {
        "algorithms/tinker/app.py",
        "loomrl/http/*",
        "loomrl/hub/*",
        "loomrl/hub/atropos/*",
        "loomrl/coordinator/service.py",
        "loomrl/observability/exposition.py",
        "loomrl/console/*",
    },
    "prometheus_client": {
        "loomrl/observability/*",
        "loomrl/serving/meter.py",
        "loomrl/telemetry/*",
    },
    "opentelemetry": {"loomrl/observability/trace.py"},
    "jinja2": {"loomrl/console/page.py", "loomrl/console/saved.py"},
    "uvicorn": {"loomrl/http/*", "experiments/bench/hub.py"},
}
"""A backend's package → the only files that may import it."""


def room(parts: tuple[str, ...]) -> str:
    """The folder of the top level that a module is in; `__main__` is a room of its own."""
    return parts[1] if parts[1:2] and parts[1] in MAY_IMPORT else "loomrl"


def layer(parts: tuple[str, ...]) -> str | None:
    """The layer of `loomrl.hub.codec` is hub; the package's own front door has none."""
    inside = len(parts) > 1 and parts[0] == "loomrl" and not parts[1].startswith("__") and room(parts) == "loomrl"
    return parts[1] if inside else None


def test_imports_point_one_way() -> None:
    assert [f"{path.relative_to(ROOT)}: {fault}" for path in SOURCES for fault in _wrong_imports(path)] == []


def _wrong_imports(path: Path) -> Iterator[str]:
    parts = module(path)
    own = layer(parts)
    for name in imports(path):
        target = tuple(name.split("."))
        if target[0] in TOP[1:]:
            yield f"{name} is imported as loomrl.{name}"
        if target[0] == "loomrl" and room(target) not in MAY_IMPORT[room(parts)]:
            yield f"{name}: {room(parts)} may import {sorted(MAY_IMPORT[room(parts)])}"
        other = layer(target)
        if own and other in LAYERS and LAYERS.index(other) > LAYERS.index(own):
            yield f"{name} points from layer {own} up to {other}"


def test_backends_are_named_only_where_they_are_opened() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in SOURCES
        for name in imports(path)
        if (allowed := OPENED_IN.get(name.split(".")[0])) is not None
        and not any(path.relative_to(ROOT).match(pattern) for pattern in allowed)
    ]
    assert wrong == []


def test_every_module_of_loomrl_has_its_layer() -> None:
    layers = {layer(module(path)) for path in SOURCES} - {None}
    assert layers <= set(LAYERS), f"no layer: {layers - set(LAYERS)}"


def test_front_doors_load_nothing_heavy() -> None:
    doors = "loomrl, loomrl.config, loomrl.load, loomrl.gym, loomrl.experiments.cli, loomrl.feedback.client"
    doors += ", loomrl.experiments.train"  # which refuses what cannot be trained before it imports the rest
    heavy = "{'torch', 'ray', 'vllm', 'transformers', 'sympy'}"
    code = f"import sys, {doors}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_top_level_is_what_was_promised() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {line.split("/")[0] for line in tracked.splitlines() if "/" in line}
    assert folders == {*TOP, "tests", "docs", ".ci"}


def test_no_files_import_each_other_in_a_circle() -> None:
    names = {".".join(module(path)).removesuffix(".__init__"): path for path in SOURCES}
    graph = {
        name: {found for target in imports(path) if (found := nearest(target, names)) and found != name}
        for name, path in names.items()
    }
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" ← ".join(error.args[1]))
