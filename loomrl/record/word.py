"""Text for people: what a policy, a caller or a file said is shown letter by letter, and nothing of it acts."""

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that are not seen, or that change how others are: controls, marks of direction, tags, half surrogates."""


def visible(text: str) -> str:
    """The text with every hidden character as a sign: `⟨U+001B⟩` for ESC, `⟨U+202E⟩` for a mark of direction."""
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def number(value: float | None, *, digits: int = 3) -> str:
    """A number in few letters: `1,024`, `0.517`, `3.2e-07`; `–` for none."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.3g}"
    if abs(value) < 0.01:
        return f"{value:.{digits}g}"
    places = digits - 2 if abs(value) >= 100 else digits - 1 if abs(value) >= 10 else digits
    return f"{value:.{places}f}".rstrip("0").rstrip(".")


def signed(value: float | None) -> str:
    """A difference: `+0.02`, `−0.1`."""
    said = number(value)
    return said.replace("-", "−") if said.startswith("-") or said == "–" else f"+{said}"


def count(value: float | None) -> str:
    """A count with separators: `1,000,000`."""
    return "–" if value is None else f"{round(value):,}"


def percent(value: float | None) -> str:
    """A share: `12.5 %`."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.3g} %"


def lasting(seconds: float | None) -> str:
    """A duration: `3 min 42 s`."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    days = whole // 86_400
    hours = whole // 3600 % 24
    minutes = whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{seconds:.3g} s"


def compare_plan(plan: Mapping[str, Any]) -> str:
    """A run's plan beside what was `measured`."""
    took = plan["measured"]
    slower, larger = (took[name] / plan[name] - 1 for name in ("seconds", "memory_gb"))
    return (
        f"planned {lasting(plan['seconds'])} and {plan['memory_gb']:.2f} GB; it took {lasting(took['seconds'])} "
        f"({slower:+.0%}) and {took['memory_gb']:.2f} GB ({larger:+.0%})"
    )


def clock(seconds: float | None) -> str:
    """A time on this machine: `2026-05-04 13:07:22`."""
    if seconds is None:
        return "–"
    try:
        return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g}"


def iso(seconds: float) -> str:
    """A time for programs."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return ""


def ago(seconds: float | None) -> str:
    """A time by its distance: `4 min ago`."""
    if seconds is None:
        return "–"
    passed = time.time() - seconds
    for size, unit in ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "min")):
        if passed >= size:
            return f"{passed // size:.0f} {unit} ago"
    return "just now" if passed >= 0 else "ahead"


def short(text: str, most: int = 80) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"
