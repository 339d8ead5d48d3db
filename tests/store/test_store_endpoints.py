import threading

import pytest

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.endpoints import (
    ENDPOINTS,
    Arm,
    Role,
    State,
    delete_endpoint,
    drain_endpoint,
    list_endpoints,
    set_endpoint,
    show_endpoint,
)
from loomrl.store.events import EVENTS

STABLE = Arm(name="stable", policy="math/40")
HALF = Arm(name="stable", policy="math/40", share=0.5)
CANARY = Arm(name="canary", policy="math/50", share=0.5, role=Role.CANARY)
SHADOW = Arm(name="shadow", policy="math/60", share=0.1, role=Role.SHADOW)


def test_every_change_is_a_new_revision_and_the_history_stays(store: LoomDB) -> None:
    set_endpoint(store, "math", [STABLE], at=1.0, reason="first")
    set_endpoint(store, "math", [HALF, CANARY, SHADOW], at=2.0)
    now = show_endpoint(store, "math")
    assert (now.revision, now.arms, now.stable) == (2, (HALF, CANARY, SHADOW), HALF)
    assert [(each.revision, each.reason) for each in ENDPOINTS.latest(store, name="math")] == [(2, ""), (1, "first")]
    assert [event.data["revision"] for _, event in EVENTS.read(store, kind="endpoint.changed")] == [1, 2]


def test_whoever_saw_an_older_revision_is_refused(store: LoomDB) -> None:
    set_endpoint(store, "math", [STABLE], at=1.0, revision=0)
    set_endpoint(store, "math", [HALF, CANARY], at=2.0, revision=1)
    with pytest.raises(StoreError, match="at revision 2, and the change was made for revision 1"):
        set_endpoint(store, "math", [STABLE], at=3.0, revision=1)
    assert show_endpoint(store, "math").arms == (HALF, CANARY)


def test_of_many_who_change_one_revision_at_once_one_succeeds(store: LoomDB) -> None:
    set_endpoint(store, "math", [STABLE], at=0.0)
    outcomes = []

    def change(number: int) -> None:
        arm = Arm(name="stable", policy=f"math/{number}")
        try:
            outcomes.append(set_endpoint(store, "math", [arm], at=1.0, revision=1).stable.policy)
        except StoreError:
            outcomes.append(None)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [each for each in outcomes if each]
    assert len(outcomes) == 8
    assert show_endpoint(store, "math").stable.policy == winner


def test_a_drained_endpoint_keeps_its_arms_and_opens_again(store: LoomDB) -> None:
    set_endpoint(store, "math", [HALF, CANARY], at=1.0)
    drained = drain_endpoint(store, "math", at=2.0, reason="maintenance")
    assert (drained.state, drained.arms) == (State.DRAINING, (HALF, CANARY))
    assert set_endpoint(store, "math", [STABLE], at=3.0).state is State.SERVING


def test_a_deleted_endpoint_is_gone_and_its_name_continues_its_revisions(store: LoomDB) -> None:
    set_endpoint(store, "math", [STABLE], at=1.0)
    set_endpoint(store, "code", [STABLE], at=1.0)
    delete_endpoint(store, "math", at=2.0)
    assert [endpoint.name for endpoint in list_endpoints(store)] == ["code"]
    with pytest.raises(StoreError, match="no endpoint 'math'"):
        show_endpoint(store, "math")
    with pytest.raises(StoreError, match="no endpoint 'math'"):
        drain_endpoint(store, "math", at=3.0)
    assert set_endpoint(store, "math", [STABLE], at=3.0, revision=0).revision == 3


@pytest.mark.parametrize(
    ("name", "arms", "said"),
    [
        ("a b", [STABLE], "letters"),
        ("math", [], "one stable arm"),
        ("math", [CANARY], "one stable arm is needed.*none"),
        ("math", [STABLE, CANARY], "sum to 1.5"),
        ("math", [HALF, Arm(name="stable", policy="x", share=0.5, role=Role.CANARY)], "stable is there twice"),
        ("math", [Arm(name="stable", policy="x", share=1.5)], "between 0 and 1"),
    ],
)
def test_arms_that_cannot_share_the_traffic_are_refused(store: LoomDB, name: str, arms: list[Arm], said: str) -> None:
    with pytest.raises(StoreError, match=said):
        set_endpoint(store, name, arms, at=1.0)
    assert list_endpoints(store) == []


def test_a_misspelt_endpoint_gets_the_nearest_name(store: LoomDB) -> None:
    set_endpoint(store, "math", [STABLE], at=1.0)
    with pytest.raises(StoreError, match=r"Known: math\. Did you mean 'math'"):
        show_endpoint(store, "mat")
