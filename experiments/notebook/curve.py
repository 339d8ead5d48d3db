"""The picture of how a policy got better, from evaluations as the log has them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loomrl.errors import ConfigError

CURVES: Mapping[str, tuple[str, float | None]] = {
    "reward": ("Episode reward", None),
    "completed": ("Completion rate", 1.0),
    "success": ("Success rate", 1.0),
    "reasoning": ("Reasoning, words", None),
    "level_reached": ("Level reached", 10.0),
    "steps": ("Steps of an episode", None),
}
"""Curves by their name in the records: a title, and the axis' end if fixed."""


def draw(history: Sequence[Mapping[str, Any]], path: Path, title: str) -> Path:
    """Draw all evaluations in the format of the path's suffix: png, svg or pdf."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            f"a picture needs matplotlib ({error}). Install it with: pip install 'loomrl[plot]'."
        ) from None
    shown = [name for name in CURVES if any(record.get(name) is not None for record in history)]
    columns = -(-(len(shown) + 1) // 2)
    figure = Figure(figsize=(4 * columns, 7), layout="constrained")
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in formats:
        raise ConfigError(f"path={str(path)!r}: give it one of these endings: {', '.join(sorted(formats))}.")
    failed = max(record.get("failed", 0.0) for record in history)
    left_out = f"; of one, {failed:.0%} failed and are left out" if failed else ""
    policies = ", ".join(dict.fromkeys(record["report"]["policy"] for record in history))
    figure.suptitle(f"{title}: {len(history)} evaluations of {policies:.100}{left_out}")
    panels = list(figure.subplots(2, columns).flat)
    for panel, name in zip(panels, shown, strict=False):
        heading, top = CURVES[name]
        panel.plot([record["step"] for record in history], [record.get(name) for record in history], marker="o")
        panel.set(title=heading, xlabel="step")
        if top is not None:
            panel.set_ylim(-0.05 * top, 1.05 * top)
    _last_rewards(panels[len(shown)], history[-1])
    for empty in panels[len(shown) + 1 :]:
        empty.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _last_rewards(panel: Any, record: Mapping[str, Any]) -> None:
    """The rewards of the latest evaluation's episodes, by level where there are levels."""
    if record["episodes"][0].get("level") is None:
        panel.hist([episode["reward"] for episode in record["episodes"]], bins=20)
        panel.set(title="Episode rewards, latest evaluation", xlabel="reward", ylabel="episodes")
        return
    levels = sorted({episode["level"] for episode in record["episodes"]})
    rewards = [[e["reward"] for e in record["episodes"] if e["level"] == level] for level in levels]
    panel.boxplot(rewards, tick_labels=levels)
    panel.set(title="Episode rewards, latest evaluation", xlabel="level")
