"""Arms as they are written on the command line: `NAME=WHAT[:SHARE[:ROLE]]`."""

from collections.abc import Sequence
from dataclasses import replace

from loomrl.errors import ConfigError, unknown
from loomrl.inference.gguf import PACKAGE
from loomrl.serving.deployment.source import source_of
from loomrl.store import LoomDB
from loomrl.store.endpoints import Arm, Role

ROLES = tuple(role.value for role in Role)


def parse_arms(texts: Sequence[str], db: LoomDB) -> list[Arm]:
    """The arms; a ConfigError for a policy that does not exist. One without a share takes what the others leave."""
    arms = [_parse(text, db) for text in texts]
    heard = [share for arm, share in arms if arm.role is not Role.SHADOW and share is not None]
    left = max(0.0, round(1 - sum(heard), 9))
    return [replace(arm, share=left if share is None else share) for arm, share in arms]


def _parse(text: str, db: LoomDB) -> tuple[Arm, float | None]:
    name, sign, rest = text.partition("=")
    if not sign or not name or not rest:
        raise ConfigError(f"{text!r}: an arm is NAME=WHAT[:SHARE[:ROLE]], such as canary=math-1/50:0.1.")
    package, rest = (PACKAGE, rest.removeprefix(PACKAGE)) if rest.startswith(PACKAGE) else ("", rest)
    what, *more = rest.split(":")
    if len(more) > 2:
        raise ConfigError(f"{text!r}: after the policy come share and role only, such as canary=math-1/50:0.1:canary.")
    share = _share(more[0], text) if more else None
    role = more[1] if len(more) == 2 else name if name in ROLES else Role.CANARY.value
    if role not in ROLES:
        raise ConfigError(f"{text!r}: " + unknown("role", role, ROLES))
    source = source_of(package + what, db)
    return Arm(name=name, policy=source.key, role=Role(role), content=source.content()), share


def _share(text: str, arm: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{arm!r}: share={text!r} is no number; write one between 0 and 1.") from None
