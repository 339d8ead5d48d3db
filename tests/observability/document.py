"""The tables of metrics in `docs/monitoring.md`. `python -m tests.observability.document` writes them."""

import re
from pathlib import Path

from loomrl.observability.family import families
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import training_family

PAGE = Path(__file__).resolve().parents[2] / "docs/monitoring.md"
FAMILIES = "<!-- families: made by `python -m tests.observability.document` -->"
ORIGINS = {"record": "the record", "gateway": "a gateway", "bus": "a bus", "trainer": "a training"}


def told(page: str) -> str:
    """The page with the tables as they should be."""
    page = _between(page, FAMILIES, "<!-- end -->", _families())
    return _between(page, "<!-- trainings -->", "<!-- end trainings -->", _trainings())


def _families() -> str:
    lines = ["| metric | kind | labels | of | meaning |", "|---|---|---|---|---|"]
    for each in families():
        labels = " ".join(f"`{label}`" for label in each.labels)
        buckets = f" Buckets: {' '.join(f'{bound:g}' for bound in each.buckets)}." if each.buckets else ""
        lines.append(f"| `{each.name}` | {each.kind} | {labels} | {ORIGINS[each.origin]} | {each.meaning}{buckets} |")
    return "\n".join(lines)


def _trainings() -> str:
    lines = ["| metric | meaning |", "|---|---|"]
    lines += [f"| `{training_family(metric).name}` | {metric.meaning} |" for metric in Metric]
    return "\n".join(lines)


def _between(page: str, begin: str, end: str, text: str) -> str:
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    return re.sub(pattern, lambda _: f"{begin}\n{text}\n{end}", page, count=1, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(told(PAGE.read_text()))
