"""A picture of a release from its record: the new version's share of the traffic, and its evidence, over time."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from loomrl.console.release import limit_of
from loomrl.release.controller import ReleaseLook, replay_evidence
from loomrl.release.guard import Finding
from loomrl.release.passage import PlanStep, steps_of
from loomrl.store import LoomDB
from loomrl.store.releases import ReleaseRow
from loomrl.telemetry.plot import COLOURS, picture

SEEN = 0.5
"""Differences beyond this, or eight margins, are outside the picture."""
LONGEST_REASON = 105
UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
"""Units of the time axis, the longest that fits three times."""


def draw(file: Path, look: ReleaseLook, rows: Sequence[ReleaseRow], db: LoomDB) -> None:
    """Write the picture of a release that is open or has ended."""
    since = rows[0].created_at
    end = rows[-1].created_at
    is_open = look.release.passage.is_open
    until = max(look.now if is_open else end + 0.06 * (end - since), since + 1e-3)
    moments = replay_evidence(db, look.release, since=since, until=until)
    places = [
        place
        for place in range(len(look.evidence.findings))
        if any(math.isfinite(moment.findings[place].difference) for moment in moments)
    ]
    with picture(file, 7.0, 1.0 + 1.9 * (1 + len(places))) as drawn:
        drawn.suptitle(_title(look), x=0.02, ha="left", fontsize=10)
        ramp, *panels = drawn.subplots(1 + len(places), 1, sharex=True, squeeze=False)[:, 0]
        size, unit = next((each for each in UNITS if until - since > 3 * each[0]), UNITS[-1])
        _ramp(ramp, look, [((row.created_at - since) / size, row) for row in rows], (until - since) / size)
        for panel, place in zip(panels, places, strict=True):
            _evidence(panel, [((each.at - since) / size, each.findings[place]) for each in moments])
            if not is_open:
                panel.axvline((end - since) / size, color="#14140f", linestyle=":", gid="end")
        ramp.xaxis.set_major_formatter(lambda passed, _: f"{passed:g} {unit}")
        ramp.set_xlim(0, (until - since) / size)


def _title(look: ReleaseLook) -> str:
    release = look.release
    names = [Path(key).name if key.startswith("/") else key for key in (release.challenger, release.baseline)]
    reason = release.row.reason
    cut = reason if len(reason) < LONGEST_REASON else reason[: LONGEST_REASON - 1] + "…"
    return f"{names[0]} against {names[1]}: {release.row.state.replace('_', ' ')}\n{cut}"


def _ramp(panel: Axes, look: ReleaseLook, rows: Sequence[tuple[float, ReleaseRow]], until: float) -> None:
    """The share of the new version."""
    steps = steps_of(look.release.plan)
    shares = [_share(row, steps) for _, row in rows]
    times = [*(at for at, _ in rows), until]
    panel.fill_between(times, [*shares, shares[-1]], step="post", color=COLOURS[0], alpha=0.3, gid="share")
    panel.set_title("Share of the new version", loc="left")
    panel.set_ylim(0, 1.05)
    panel.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    before = 0.0
    for (at, row), share in zip(rows, shares, strict=True):
        if share != before and row.state == "open":
            panel.annotate(f"{100 * share:g} %", (at, share), xytext=(4, 3), textcoords="offset points")
        before = share


def _share(row: ReleaseRow, steps: Sequence[PlanStep]) -> float:
    """The share of the traffic from this row on."""
    at: int = row.content["passage"]["step"]
    if row.state == "done":
        return 0.0 if steps[-1].is_shadow else 1.0
    if row.state != "open" or at < 0 or steps[at].is_shadow:
        return 0.0
    return steps[at].share


def _evidence(panel: Axes, findings: Sequence[tuple[float, Finding]]) -> None:
    """The difference of one metric, its interval, and what is accepted."""
    there = [(at, finding) for at, finding in findings if math.isfinite(finding.difference)]
    last = there[-1][1]
    accepted = limit_of(last)
    most = SEEN if accepted is None else min(SEEN, 8 * abs(accepted))
    edges = [value for _, each in there for value in (each.low, each.high) if math.isfinite(value)]
    low, high = max(min(*edges, 0.0), -most), min(max(*edges, 0.0), most)
    times = [at for at, _ in there]
    panel.fill_between(
        times,
        [max(each.low, low) for _, each in there],
        [min(each.high, high) for _, each in there],
        color=COLOURS[0],
        alpha=0.3,
        gid="interval",
    )
    panel.plot(times, [each.difference for _, each in there], color="#14140f", linewidth=1.2, gid="difference")
    panel.axhline(0, color="#85837b", linewidth=0.8)
    if accepted:
        panel.axhline(accepted, color=COLOURS[1], linestyle="--", gid="accepted")
        panel.annotate("accepted", (times[0], accepted), xytext=(4, 3), textcoords="offset points", color=COLOURS[1])
    panel.set_title(last.guard.label, loc="left")
    units = f"new minus stable, {last.challenger.count:,} and {last.baseline.count:,} units"
    panel.set_title(units, loc="right", fontsize=8, color="#55544f")
    panel.set_ylim(low, max(high, low + 1e-3))
