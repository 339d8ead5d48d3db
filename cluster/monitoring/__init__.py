"""A monitoring stack: Prometheus' configuration and rules, Grafana's dashboards, to be copied into a folder."""

import shutil
from pathlib import Path

SHIPPED = Path(__file__).parent
FILES = (
    "prometheus.yaml",
    "recording.yaml",
    "alerts.yaml",
    "loki.yaml",
    "logs.alloy",
    "grafana/datasource.yaml",
    "grafana/loki.yaml",
    "grafana/provider.yaml",
)
KEY = "key"
"""The file of the key that Prometheus sends; empty as shipped."""


def files() -> list[Path]:
    """The paths of all files, below the folder."""
    return [*map(Path, (*FILES, KEY)), *sorted(path.relative_to(SHIPPED) for path in SHIPPED.glob("dashboards/*.json"))]


def write(folder: Path) -> list[Path]:
    """Copy them into a folder; what is there under their names is overwritten, except a key."""
    written = []
    for name in files():
        if name == Path(KEY) and (folder / name).exists():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        written.append(Path(shutil.copyfile(SHIPPED / name, folder / name)))
    return written
