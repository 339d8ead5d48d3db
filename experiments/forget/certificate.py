"""The certificate of a forgetting: what was found, done and checked, signed with the operator's Ed25519 key.

`openssl pkeyutl -verify -pubin -inkey PUBLIC.pem -rawin -in CERTIFICATE.json -sigfile CERTIFICATE.json.sig` checks it.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from loomrl.canonical import canonical_json
from loomrl.errors import ConfigError
from loomrl.experiments.forget.plan import WeightPlan
from loomrl.files import write_whole
from loomrl.release.ledger import latest
from loomrl.run.version import has_checkpoint, hashes_of
from loomrl.store import LoomDB
from loomrl.store.endpoints import list_endpoints
from loomrl.store.forgettings import Forgetting, find_learners, find_rows, named_policies
from loomrl.store.policies import lineage
from loomrl.store.releases import RELEASES
from loomrl.store.runs import POLICIES, code_revision, served_version
from loomrl.types import Stage

FORMAT = "loomrl forgetting 1"


def load_key(file: Path) -> Ed25519PrivateKey:
    """The operator's private key; a ConfigError says how to make one."""
    remedy = f"`openssl genpkey -algorithm ed25519 -out {file}` makes one."
    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--key={file}: {error}. An Ed25519 key in PEM without a password is needed; {remedy}"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"--key={file}: it is another kind of key. Ed25519 is needed; {remedy}")
    return key


def sign(certificate: Mapping[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The certificate with its signature and the public key."""
    return {
        "certificate": dict(certificate),
        "signature": key.sign(canonical_json(certificate)).hex(),
        "public_key": key.public_key().public_bytes_raw().hex(),
    }


def write_certificate(signed: Mapping[str, Any], file: Path) -> None:
    """Write the certificate's canonical JSON, and the signature beside it."""
    write_whole(file, canonical_json(signed["certificate"]))
    write_whole(file.with_name(f"{file.name}.sig"), bytes.fromhex(signed["signature"]))


def certify(
    db: LoomDB,
    forgetting: Forgetting,
    made: Mapping[str, str],
    unreached: Sequence[Mapping[str, str]],
) -> dict[str, Any]:
    """The certificate's content; a ConfigError if a check fails."""
    plan = WeightPlan.of(forgetting.plan)
    checks = check(db, plan, made)
    failed = [name for name, passed in checks.items() if not passed]
    if failed:
        raise ConfigError(f"forgetting {forgetting.id} is not certified: {', '.join(failed)}. Repeat the command.")
    without = {each.dataset: each.without for each in plan.datasets}
    return {
        "format": FORMAT,
        "id": forgetting.id,
        "endpoint": forgetting.endpoint,
        "people": list(forgetting.people),
        "rows": [
            {"dataset": dataset, "sha256": list(hashes), "without": without.get(dataset)}
            for dataset, hashes in plan.rows.items()
        ],
        "left_out_too": {each.dataset: each.gone for each in plan.datasets if each.gone},
        "retired": sorted(version.id for version in find_learners(db, plan.untouched).values()),
        "made_again": [
            {
                "run": replay.run,
                "into": replay.into,
                "from": f"{replay.run}/{replay.start}" if replay.start else replay.parent,
                "versions": {old: made[old] for old in replay.targets},
                "weights": {made[old]: hashes_of(POLICIES.require(db, made[old]), db) for old in replay.targets},
            }
            for replay in plan.replays
        ],
        "endpoints": {each.name: each.stable.policy for each in list_endpoints(db) if each.name in plan.endpoints},
        "verdicts": {
            endpoint: list(latest(db, endpoint).verdict.reasons)
            for endpoint in plan.endpoints
            if RELEASES.newest(db, endpoint=endpoint) is not None
        },
        "checks": checks,
        "unreached": list(unreached),
        "code": code_revision(),
        "begun_at": forgetting.created_at,
        "done_at": time.time(),
    }


def check(db: LoomDB, plan: WeightPlan, made: Mapping[str, str]) -> dict[str, bool]:
    """The checks of a forgetting by name, on what is on record and in the artifacts now."""
    learnt = find_learners(db, plan.untouched)
    theirs = {id for id, rows in find_rows(db, plan.trajectories).items() if any(row.part == "train" for row in rows)}
    new = [POLICIES.require(db, version) for version in made.values()]
    behind = {one["id"] for version in new for one in lineage(db, version.id)["ancestors"]}
    named = {served_version(db, key) for key in named_policies(db).values()}
    return {
        "the versions made again learnt from data sets without their rows": not any(
            version.data.get("dataset") in theirs for version in new
        ),
        "no ancestor of these learnt from their rows": not behind & learnt.keys(),
        "no endpoint names a version that did": not named & learnt.keys(),
        "all versions that did are marked as forgotten": all(
            version.stage is Stage.FORGOTTEN for version in learnt.values()
        ),
        "no checkpoint of these is in the artifacts": not any(
            has_checkpoint(version, db) for version in learnt.values()
        ),
    }
