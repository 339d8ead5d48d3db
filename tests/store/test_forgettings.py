"""Versions that learnt from people who are forgotten: found by lineage, and never used again."""

from collections.abc import Iterator

import pytest

from loomrl.errors import StoreError
from loomrl.run.version import copied
from loomrl.serving.deployment.source import source_of
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.erasures import open_erasures
from loomrl.store.forgettings import (
    FORGETTINGS,
    Forgetting,
    begin_forgetting,
    find_learners,
    finish_forgetting,
    retire_learners,
    spoken,
)
from loomrl.store.policies import record_policy
from loomrl.store.runs import POLICIES, Run, start_run
from loomrl.store.sessions import participants, person_hash
from loomrl.types import PolicyVersion, Stage


def made(db: LoomDB, run: str, *numbers: int, parent: str | None = None) -> None:
    """A run with these versions, each the parent of the next."""
    about = {"experiment": "0" * 64, "code": "c", "resolved": "{}", "environments": {}}
    start_run(db, Run(id=run, name=run, kind="train", started_at=1.0, parent_policy=parent, **about))
    for number in numbers:
        record_policy(db, version(run, number, parent))
        parent = f"{run}/{number}"


def version(run: str, number: int, parent: str | None) -> PolicyVersion:
    about = {"url": f"runs/{run}/{number:06d}", "algorithm": "kto", "experiment": "0" * 64, "parent": parent}
    return PolicyVersion(id=f"{run}/{number}", number=number, run=run, **about)


@pytest.fixture
def db(store_url: str) -> Iterator[LoomDB]:
    """Run b learns from their rows after its second update; c and d descend from it, e does not."""
    db = open_store(store_url)
    made(db, "a", 0, 5)
    made(db, "b", 0, 2, 4, parent="a/5")
    made(db, "c", 0, 3, parent="b/4")
    made(db, "d", 0, parent="c/3")
    made(db, "e", 0, 9, parent="b/2")
    yield db
    db.close()


def test_versions_that_learnt_are_those_after_the_first_row_and_all_that_descend_from_them(db: LoomDB) -> None:
    assert set(find_learners(db, {"b": 2})) == {"b/4", "c/0", "c/3", "d/0"}
    assert set(find_learners(db, {"b": 0, "e": 9})) == {"b/2", "b/4", "c/0", "c/3", "d/0", "e/0", "e/9"}
    assert not find_learners(db, {"e": 9})


def test_version_that_is_served_is_not_retired_and_one_that_is_retired_is_not_served(db: LoomDB) -> None:
    set_endpoint(db, "end", [Arm(name="stable", policy="d/0")], at=1.0)
    with pytest.raises(StoreError, match=r"endpoint 'end' names 'd/0'.*loomrl release VERSION --to end"):
        retire_learners(db, "f", {"b": 2}, at=2.0)
    assert POLICIES.require(db, "b/4").stage is not Stage.FORGOTTEN, "all or none"
    set_endpoint(db, "end", [Arm(name="stable", policy="e/9")], at=3.0)
    assert len(retire_learners(db, "f", {"b": 2}, at=4.0)) == 4
    assert len(retire_learners(db, "f", {"b": 2}, at=5.0)) == 4, "repeated, it finds the same"
    why = r"policy 'd/0' is never used again: it learnt from a person who was forgotten since \(forgetting f\)"
    for policy in ("d/0", "d@newest", "d@best"):
        with pytest.raises(StoreError, match=why):
            set_endpoint(db, "end", [Arm(name="stable", policy=policy)], at=6.0)
    with pytest.raises(StoreError, match=why):
        copied(POLICIES.require(db, "d/0"), db)
    with pytest.raises(StoreError, match=why):
        source_of("d/0", db)


def test_nothing_is_trained_further_from_a_version_that_is_forgotten(db: LoomDB) -> None:
    retire_learners(db, "f", {"b": 2}, at=2.0)
    with pytest.raises(StoreError, match="'c/3' is never used again"):
        record_policy(db, version("c", 6, "c/3"))
    with pytest.raises(StoreError, match="'c/3' is never used again"):
        made(db, "new", parent="c/3")
    with pytest.raises(StoreError, match="'c/3' is never used again"):
        made(db, "c", parent="b/2")
    made(db, "other", 0, parent="b/2")


def test_forgetting_begins_with_the_deletion_of_the_record_and_is_certified_once(db: LoomDB) -> None:
    person = person_hash("end", "ada")
    with db.write() as connection:
        connection.execute(participants.insert().values(session="s", person=person, endpoint="end"))
    begun = Forgetting(id="f", endpoint="end", people=(person,), plan={"trajectories": []}, created_at=1.0)
    with pytest.raises(StoreError, match="spoke while the plan was made"):
        begin_forgetting(db, begun, ["ada"])
    assert not FORGETTINGS.latest(db)
    begun = Forgetting(id="f", endpoint="end", people=(person,), plan={"trajectories": ["s"]}, created_at=1.0)
    begin_forgetting(db, begun, ["ada"])
    assert [one.trajectories for one in open_erasures(db, "end")] == [("s",)]
    assert not spoken(db, "end", ["ada"])
    finish_forgetting(db, begun, {"certificate": 1}, at=2.0)
    assert finish_forgetting(db, begun, {"certificate": 2}, at=3.0).certificate == {"certificate": 1}
