"""Grafana's panels and boards, as far as ours need them, as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["timeseries", "stat", "bargauge", "table"]
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDE = 8
HIGH = 7
ABREAST = 3
"""A panel's size in Grafana's grid of 24 columns, and panels in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Curves of queries: expression and legend of each. A table has a row for each series."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: Kind = "timeseries"
    about: str = ""

    def json(self, number: int) -> dict[str, Any]:
        """The panel in its place."""
        row, column = divmod(number, ABREAST)
        options: dict[str, Any] = {"tooltip": {"mode": "multi", "sort": "desc"}} if self.kind == "timeseries" else {}
        return {
            "id": number + 1,
            "type": self.kind,
            "title": self.title,
            "description": self.about,
            "datasource": SOURCE,
            "gridPos": {"x": WIDE * column, "y": HIGH * row, "w": WIDE, "h": HIGH},
            "fieldConfig": {"defaults": {"unit": self.unit}, "overrides": []},
            "options": options,
            "targets": [
                {
                    "refId": chr(65 + place),
                    "datasource": SOURCE,
                    "expr": expression,
                    "legendFormat": legend,
                    **({"instant": True, "range": False, "format": "table"} if self.kind == "table" else {}),
                }
                for place, (expression, legend) in enumerate(self.queries)
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A dashboard."""

    uid: str
    title: str
    panels: Sequence[Panel]
    choice: tuple[str, str] | None = None
    """A variable that panels use as `$NAME`, and the metric whose label of this name has its values."""

    def json(self) -> dict[str, Any]:
        """The whole dashboard, as Grafana imports it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["loomrl"],
            "schemaVersion": 39,
            "version": 1,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "browser",
            "graphTooltip": 1,
            "templating": {"list": [_source(), *([_variable(*self.choice)] if self.choice else [])]},
            "panels": [panel.json(number) for number, panel in enumerate(self.panels)],
        }


def _source() -> dict[str, Any]:
    return {
        "name": "source",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "prometheus"},
    }


def _variable(name: str, metric: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({metric}, {name})", "refId": name},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
