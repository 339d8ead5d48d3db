"""The two parties of a gate: a policy and its baseline, by name."""

from dataclasses import dataclass
from pathlib import Path

from loomrl.config.suite import Suite
from loomrl.errors import ConfigError, there_are
from loomrl.experiments.evaluate_control import RANDOM
from loomrl.experiments.policies import SCRIPTED, is_served
from loomrl.inference.gguf import is_model
from loomrl.serving.deployment.source import PolicySource, source_of
from loomrl.store import LoomDB
from loomrl.store.endpoints import list_endpoints, show_endpoint
from loomrl.store.verdicts import StoredVerdict, find_verdict

PRODUCTION = "production"


@dataclass(frozen=True, slots=True)
class Party:
    """A policy in front of the gate."""

    key: str
    """`RUN/12`, a folder, `pkg.module:callable`: the name that arms and LoomDB use."""
    fingerprint: str = ""
    """Hash of a folder's files."""
    version: str | None = None
    """Id of the version in LoomDB, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parties:
    """The policy in front of the gate, and its baseline."""

    challenger: Party
    baseline: Party | None


def find_parties(version: str, against: str | None, suite: Suite, db: LoomDB) -> Parties:
    """Both policies by name; errors name what is unknown or gone."""
    baseline = None if against is None else find_baseline(against, suite.kind, db)
    return Parties(challenger=find_party(version, suite.kind, db), baseline=baseline)


def standing_verdict(parties: Parties, suite: Suite, db: LoomDB) -> StoredVerdict | None:
    """The latest verdict on record about this version against this baseline by this very suite."""
    return find_verdict(
        db,
        policy=parties.challenger.key,
        fingerprint=parties.challenger.fingerprint,
        against=parties.baseline.key if parties.baseline else None,
        suite_hash=suite.sha256,
    )


def find_party(text: str, kind: str, db: LoomDB) -> Party:
    """The policy of this name; a ConfigError if it is unknown or of another kind than the suite."""
    is_code = ":" in text and not Path(text).exists() and not is_model(text)
    if text in (*SCRIPTED, RANDOM) or is_served(text) or is_code:
        return Party(text)
    return party_of(source_of(text, db), kind)


def party_of(source: PolicySource, kind: str) -> Party:
    """A policy that was looked up as a party; a ConfigError if the suite is for another kind."""
    if source.kind != kind:
        raise ConfigError(
            f"policy {source.key!r} is a {source.kind} policy, but the suite is for {kind}: name another --suite."
        )
    if source.folder:
        return Party(source.key, source.content())
    return Party(source.version, version=source.version)


def find_baseline(text: str, kind: str, db: LoomDB) -> Party:
    """The policy of this name; `production[:ENDPOINT]` is an endpoint's stable policy."""
    word, _, endpoint = text.partition(":")
    if word != PRODUCTION:
        return find_party(text, kind, db)
    names = [each.name for each in list_endpoints(db)]
    if not endpoint and len(names) != 1:
        raise ConfigError(f"--against={text}: which endpoint? Write production:NAME. {there_are(names)}")
    return find_party(show_endpoint(db, endpoint or names[0]).stable.policy, kind, db)
