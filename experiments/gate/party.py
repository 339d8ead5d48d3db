"""The two parties of a gate: a policy and its baseline, by name."""

from dataclasses import dataclass
from pathlib import Path

from loomrl.errors import ConfigError, there_are
from loomrl.experiments.evaluate_control import RANDOM
from loomrl.experiments.policies import SCRIPTED, is_served
from loomrl.serving.deployment.source import source_of
from loomrl.store import LoomDB
from loomrl.store.endpoints import list_endpoints, show_endpoint

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


def find_party(text: str, kind: str, db: LoomDB) -> Party:
    """The policy of this name; a ConfigError if it is unknown or of another kind than the suite."""
    if text in (*SCRIPTED, RANDOM) or is_served(text) or (":" in text and not Path(text).exists()):
        return Party(text)
    source = source_of(text, db)
    if source.kind != kind:
        raise ConfigError(
            f"policy {text!r} is one of {source.kind}, and the suite is for {kind}: name another --suite."
        )
    if source.folder:
        return Party(source.key, source.content())
    return Party(source.version, version=source.version)


def find_baseline(text: str, kind: str, db: LoomDB) -> Party:
    """As `find_party`; `production[:ENDPOINT]` is the stable policy of an endpoint."""
    word, _, endpoint = text.partition(":")
    if word != PRODUCTION:
        return find_party(text, kind, db)
    names = [each.name for each in list_endpoints(db)]
    if not endpoint and len(names) != 1:
        raise ConfigError(f"--against={text}: which endpoint? Write production:NAME. {there_are(names)}")
    return find_party(show_endpoint(db, endpoint or names[0]).stable.policy, kind, db)
