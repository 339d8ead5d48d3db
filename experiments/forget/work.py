"""Forgetting people in weights, from the plan to the certificate. A second call goes on where the first one ended."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from loomrl.config import HubConfig
from loomrl.config.release import ReleasePlan
from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.forget.certificate import certify, sign
from loomrl.experiments.forget.plan import WeightPlan, plan_forgetting
from loomrl.experiments.forget.replay import make_again
from loomrl.experiments.forget.retire import delete_weights, end_trainings
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.experiments.release import GateRefused, ReleaseRequest, begin
from loomrl.hub.open import open_endpoint_hub
from loomrl.release.controller import PACE_S, Controller
from loomrl.release.ledger import Release, latest
from loomrl.release.passage import ReleasePhase
from loomrl.run.version import has_checkpoint
from loomrl.serving.deployment.source import source_of
from loomrl.serving.retention import erasure
from loomrl.store import LoomDB
from loomrl.store.endpoints import ENDPOINTS, show_endpoint
from loomrl.store.forgettings import (
    FORGETTINGS,
    MOST,
    Forgetting,
    begin_forgetting,
    find_learners,
    finish_forgetting,
    open_forgettings,
    retire_learners,
)
from loomrl.store.releases import RELEASES
from loomrl.store.runs import POLICIES, served_version
from loomrl.store.sessions import person_hash

WHY = "people are forgotten"
AT_ONCE = ReleasePlan.parse({"strategy": "immediate"})
"""The release of a fallback."""


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
    if wish.suite is not None:
        resolve_suite(wish.suite)  # an unknown one would be refused after hours of training
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
        release_instead(db, plan, endpoint, made[version], wish)
    end_trainings(db, plan, forgetting.id)
    retired = retire_learners(db, forgetting.id, plan.untouched, at=time.time())
    unreached = delete_weights(db, plan, retired)
    certificate = certify(db, forgetting, made, unreached)
    return finish_forgetting(db, forgetting, sign(certificate, wish.key), at=time.time())


# -- in the place of what is served ---------------------------------------------------------------------------------


def release_instead(db: LoomDB, plan: WeightPlan, endpoint: str, new: str, wish: Wish) -> None:
    """Release the version that was made again to an endpoint, and follow the release to its end.

    If the gate refuses it, or its release ends otherwise, an earlier stable version answers at once: what learnt from
    the people must not, whatever their successor is worth.
    """
    old = plan.endpoints[endpoint]
    fault = ""
    while served_version(db, show_endpoint(db, endpoint).stable.policy) == old:
        release = _own_release(db, endpoint)
        if release is None and fault:
            release = _fall_back(db, plan, endpoint, fault, wish)
        if release is None:
            try:
                release = begin(_request(endpoint, new, wish), db)
            except GateRefused as error:
                fault = str(error)
                continue
            except ConfigError as error:
                raise ConfigError(f"{error} {_still(endpoint, old)}") from None
        wish.say(f"{release.row.release}: {release.row.reason}")
        ended = _follow(db, endpoint)
        if ended.passage.phase is not ReleasePhase.DONE:
            fault = f"release {ended.row.release} is {ended.row.state} ({ended.row.reason})."
            if ended.challenger != new:
                raise ConfigError(f"{fault} {_still(endpoint, old)}")


def _request(endpoint: str, version: str, wish: Wish) -> ReleaseRequest:
    return ReleaseRequest(
        version=version,
        endpoint=endpoint,
        plan=_without_return(wish.plan),
        suite=wish.suite,
        no_gate=wish.no_gate,
        who=wish.who,
        why=WHY,
    )


def _without_return(plan: ReleasePlan) -> ReleasePlan:
    """The plan that ends with all of the traffic: there is no way back to what learnt from the people."""
    return plan.override({f"steps.{len(plan.steps) - 1}.minutes": 0.0})


def _own_release(db: LoomDB, endpoint: str) -> Release | None:
    """The open release at the endpoint, if a forgetting began it."""
    newest = RELEASES.newest(db, endpoint=endpoint)
    if newest is None or newest.content["why"] != WHY:
        return None
    release = Release.of(newest)
    return release if release.passage.is_open else None


def _fall_back(db: LoomDB, plan: WeightPlan, endpoint: str, fault: str, wish: Wish) -> Release:
    """Give all of the traffic to the version that was stable before the one that learnt from the people."""
    earlier = _earlier_stable(db, plan, endpoint)
    if earlier is None:
        raise ConfigError(
            f"{fault} Not one version that was stable there before did without them. "
            f"{_still(endpoint, plan.endpoints[endpoint])}"
        )
    request = replace(
        _request(endpoint, earlier, wish), plan=_without_return(AT_ONCE), no_gate=f"it was stable before, and {fault}"
    )
    return begin(request, db)


def _earlier_stable(db: LoomDB, plan: WeightPlan, endpoint: str) -> str | None:
    """The last policy that was stable at the endpoint, has not learnt from the people, and is there as it was then.

    One that a person or a canary took back does not count.
    """
    learnt = find_learners(db, plan.untouched)
    ends: dict[str, str] = {}
    for row in RELEASES.latest(db, endpoint=endpoint, limit=MOST):
        ends.setdefault(row.content["challenger"], row.state)
    for revision in ENDPOINTS.latest(db, name=endpoint, limit=MOST):
        arm = revision.stable
        if ends.get(arm.policy, "done") != "done":
            continue
        try:
            source = source_of(arm.policy, db)
        except LoomError:
            continue
        version = POLICIES.find(db, source.version)
        is_there = source.content() == arm.content if version is None else has_checkpoint(version, db)
        if is_there and source.follow is None and source.version not in learnt:
            return arm.policy
    return None


def _follow(db: LoomDB, endpoint: str) -> Release:
    """Move the release on, beside the service, until it ends."""
    controller = Controller(db, endpoint)
    while (release := latest(db, endpoint)).passage.is_open:
        if controller.tick() is None:
            time.sleep(PACE_S)
    return release


def _still(endpoint: str, old: str) -> str:
    return (
        f"{old}, which learnt from them, still answers at {endpoint!r}: give the same command again, with another "
        f"--suite or with --no-gate REASON; or first release another version (loomrl release VERSION --to {endpoint})."
    )
