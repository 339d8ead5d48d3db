"""A release for people and programs: where it stands, on what evidence, and why it waits."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loomrl.experiments.commands.output import table
from loomrl.record.catalogue import release_as_json
from loomrl.release.controller import ReleaseLook
from loomrl.release.guard import Finding, Side
from loomrl.release.ledger import evidence_as_json
from loomrl.release.passage import Passage, steps_of
from loomrl.store.releases import ReleaseRow


def look_as_json(look: ReleaseLook, rows: Sequence[ReleaseRow]) -> dict[str, Any]:
    """The release as one JSON object."""
    release = look.release
    return {
        "release": release.row.release,
        "endpoint": release.row.endpoint,
        "state": release.row.state,
        "step": release.passage.step,
        "paused": release.passage.is_paused,
        "reason": release.row.reason,
        "waits": list(look.waits),
        "not_seen": [asdict(each) for each in look.silences],
        "baseline": release.baseline,
        "challenger": release.challenger,
        "verdict": {"allowed": release.verdict.allowed, "reasons": list(release.verdict.reasons)},
        "arms": [{"name": arm.name, "policy": arm.policy, "share": arm.share} for arm in look.present.arms],
        "evidence": evidence_as_json(look.evidence),
        "plan": release.plan.model_dump(mode="json"),
        "history": [release_as_json(row) for row in rows],
    }


def render(look: ReleaseLook, rows: Sequence[ReleaseRow]) -> RenderableType:
    """The release on a page of a terminal."""
    release = look.release
    passage = look.release.passage
    state = release.row.state + (", paused" if passage.is_paused else "")
    head = f"{release.row.release}: {release.challenger} against {release.baseline}, {state}"
    waits = look.waits if passage.is_open else ()
    return Group(
        Text(head, style="bold"),
        Text(_ramp(look)),
        Text(""),
        table(
            "",
            ("metric", "stable>", "new>", "difference>", "interval", "units>", ""),
            map(_cells, look.evidence.findings),
        ),
        Text(""),
        *(Text(f"waits: {reason}") for reason in waits),
        *(Text(f"not seen: {each}") for each in look.silences),
        *(Text(f"{_at(row.created_at)}  {row.reason}" + (f"  [{row.who}]" if row.who else "")) for row in rows[-8:]),
    )


def _ramp(look: ReleaseLook) -> str:
    """The steps, with the present one marked."""
    passage: Passage = look.release.passage
    parts = ["start", *(str(step) for step in steps_of(look.release.plan))]
    return "  →  ".join(f"[{part}]" if at == passage.step + 1 else part for at, part in enumerate(parts))


def _cells(finding: Finding) -> Sequence[object]:
    said = "worse" if finding.is_worse else "fine" if finding.is_fine else ""
    name = finding.guard.label
    if not finding.challenger.count:
        return name, _side(finding.baseline), "", "", "", "0", said
    return (
        name,
        _side(finding.baseline),
        _side(finding.challenger),
        _number(finding.difference, "+"),
        f"{_number(finding.low, '+')} … {_number(finding.high, '+')}",
        f"{finding.baseline.count} / {finding.challenger.count}",
        said,
    )


def _side(side: Side) -> str:
    return _number(side.value) if side.count else ""


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign}.3g}" if math.isfinite(value) else ""


def _at(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
