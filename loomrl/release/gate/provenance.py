"""The origin of a version, from its lineage in LoomDB."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from loomrl.config.suite import Provenance
from loomrl.release.gate.check import Check, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The facts about a version in LoomDB and in this installation."""

    lineage: Mapping[str, Any] | None
    """`loomrl.store.lineage`; None if no recorded run made it."""
    gone: Sequence[str] = ()
    """Environment versions that it was trained on and that cannot be opened as they were."""


def provenance(rules: Provenance, origin: Origin) -> Check:
    """The check of a version's origin; the reason names every fault."""
    name = "provenance"
    if origin.lineage is None:
        state = State.FAILED if rules.unknown == "refuse" else State.NOT_APPLICABLE
        return Check(name=name, state=state, reason="no recorded run made it")
    versions = [origin.lineage, *origin.lineage["ancestors"]]
    faults = [fault for version in versions for fault in _faults(rules, version)]
    faults += [f"environment {each} no longer exists as it was" for each in origin.gone]
    oldest = versions[-1]
    if oldest["parent"] is not None:
        faults.append(f"{oldest['id']}: its parent {oldest['parent']} is not on record")
    figures = {"versions": [version["id"] for version in versions], "faults": faults}
    if faults:
        return Check(name=name, state=State.FAILED, reason="; ".join(faults[:5]), figures=figures)
    reason = f"{len(versions)} version(s) on record, down to {oldest['id']}"
    return Check(name=name, state=State.PASSED, reason=reason, figures=figures)


def _faults(rules: Provenance, version: Mapping[str, Any]) -> list[str]:
    made = version["made_from"]
    id = version["id"]
    faults = []
    if rules.clean and str(made["code"]).endswith("-dirty"):
        faults.append(f"{id}: made by changed code ({made['code']})")
    if not made["code"]:
        faults.append(f"{id}: the code that made it is unknown")
    for environment in made["environments"]:
        if not any(fnmatchcase(environment, pattern) for pattern in rules.environments):
            faults.append(f"{id}: trained on {environment}, allowed are {', '.join(rules.environments)}")
    return faults
