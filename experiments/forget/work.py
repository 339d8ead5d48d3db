"""Forgetting people in weights, from the plan to the certificate. A second call goes on where the first one ended."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from loomrl.config import HubConfig
from loomrl.config.release import ReleasePlan
from loomrl.errors import ConfigError
from loomrl.experiments.forget.certificate import certify, sign
from loomrl.experiments.forget.plan import WeightPlan, plan_forgetting
from loomrl.experiments.forget.replay import make_again
from loomrl.experiments.forget.retire import delete_weights, end_trainings
from loomrl.experiments.release import ReleaseRequest, begin
from loomrl.hub.open import open_endpoint_hub
from loomrl.release.controller import PACE_S, Controller
from loomrl.release.ledger import Release, latest
from loomrl.serving.retention import erasure
from loomrl.store import LoomDB
from loomrl.store.endpoints import show_endpoint
from loomrl.store.forgettings import (
    FORGETTINGS,
    MOST,
    Forgetting,
    begin_forgetting,
    finish_forgetting,
    open_forgettings,
    retire_learners,
)
from loomrl.store.releases import RELEASES
from loomrl.store.runs import served_version
from loomrl.store.sessions import person_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """People to forget, and how their successor is judged, released and certified."""

    endpoint: str
    names: tuple[str, ...]
    key: Ed25519PrivateKey
    plan: ReleasePlan
    suite: str | None
    no_gate: str | None
    """The reason to leave the gate out."""
    who: str
    say: Callable[[str], None] = lambda line: None
    """Told of every stage."""


def forget_weights(db: LoomDB, store_url: str, wish: Wish) -> Forgetting:
    """Finish what was begun at this endpoint, then forget these people; the last forgetting, with its certificate."""
    people = tuple(sorted(person_hash(wish.endpoint, name) for name in wish.names))
    for begun in open_forgettings(db, wish.endpoint):
        carry_out(db, store_url, begun, wish)
    plan = plan_forgetting(db, store_url, wish.endpoint, wish.names)
    earlier = [one for one in FORGETTINGS.latest(db, endpoint=wish.endpoint, limit=MOST) if one.people == people]
    if earlier and not plan.trajectories:
        return earlier[0]
    begun = Forgetting(
        id=uuid.uuid4().hex, endpoint=wish.endpoint, people=people, plan=plan.as_dict(), created_at=time.time()
    )
    begin_forgetting(db, begun, wish.names)
    return carry_out(db, store_url, begun, wish)


def carry_out(db: LoomDB, store_url: str, forgetting: Forgetting, wish: Wish) -> Forgetting:
    """All that follows from a forgetting on record; every step is harmless if it is repeated."""
    plan = WeightPlan.of(forgetting.plan)
    with open_endpoint_hub(store_url, forgetting.endpoint, HubConfig()) as hub:
        erasure.finish(db, hub, forgetting.endpoint, at=time.time())
    made: dict[str, str] = {}
    for replay in plan.replays:
        wish.say(f"{replay.run} again without them, as {replay.into}: {replay.updates} updates")
        made |= make_again(db, store_url, plan, replay, made)
    for endpoint, version in plan.endpoints.items():
        release_instead(db, endpoint, version, made[version], wish)
    end_trainings(db, plan, forgetting.id)
    retired = retire_learners(db, forgetting.id, plan.untouched, at=time.time())
    unreached = delete_weights(db, plan, retired)
    certificate = certify(db, forgetting, made, unreached)
    return finish_forgetting(db, forgetting, sign(certificate, wish.key), at=time.time())


# -- in the place of what is served ---------------------------------------------------------------------------------


def release_instead(db: LoomDB, endpoint: str, old: str, new: str, wish: Wish) -> None:
    """Release the version that was made again to an endpoint, and follow the release to its end."""
    while served_version(db, show_endpoint(db, endpoint).stable.policy) == old:
        release = _latest_release(db, endpoint)
        if release is None or release.challenger != new or not release.passage.is_open:
            request = ReleaseRequest(
                version=new,
                endpoint=endpoint,
                plan=wish.plan,
                suite=wish.suite,
                no_gate=wish.no_gate,
                who=wish.who,
                why="people are forgotten",
            )
            release = begin(request, db)
        wish.say(f"{release.row.release}: {release.row.reason}")
        _follow(db, endpoint)


def _latest_release(db: LoomDB, endpoint: str) -> Release | None:
    return None if RELEASES.newest(db, endpoint=endpoint) is None else latest(db, endpoint)


def _follow(db: LoomDB, endpoint: str) -> None:
    """Move the release on, beside the service, until it ends; a ConfigError if it came back."""
    controller = Controller(db, endpoint)
    while (release := latest(db, endpoint)).passage.is_open:
        if controller.tick() is None:
            time.sleep(PACE_S)
    if release.row.state != "done":
        raise ConfigError(
            f"release {release.row.release} is {release.row.state} ({release.row.reason}), so the version that learnt "
            f"from them still answers. The same command tries again; or release another version to {endpoint}."
        )
