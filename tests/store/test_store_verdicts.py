from dataclasses import replace

import pytest

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.verdicts import VERDICTS, StoredVerdict, VerdictOutcome, approve_verdict, find_verdict, record_verdict

WAITING = StoredVerdict(
    id="v1",
    policy="run/12",
    fingerprint="",
    against="run/10",
    suite="tiny@1.0.0",
    suite_hash="a" * 64,
    outcome=VerdictOutcome.WAITING,
    report={"approvers": ["anna", "ben"], "checks": []},
    created_at=1.0,
)
WHERE = {"policy": "run/12", "fingerprint": "", "against": "run/10", "suite_hash": "a" * 64}


def test_verdict_is_stored_once_and_found_by_its_question(store: LoomDB) -> None:
    record_verdict(store, WAITING)
    record_verdict(store, WAITING)
    assert VERDICTS.latest(store) == [WAITING] == VERDICTS.latest(store, policy="run/12")
    assert find_verdict(store, **WHERE) == WAITING
    assert find_verdict(store, **{**WHERE, "against": None}) is None
    assert find_verdict(store, **{**WHERE, "fingerprint": "other"}) is None
    later = replace(WAITING, id="v2", outcome=VerdictOutcome.REFUSED, against=None)
    record_verdict(store, later)
    assert find_verdict(store, **{**WHERE, "against": None}) == later
    with pytest.raises(StoreError, match="stored already"):
        record_verdict(store, replace(WAITING, outcome=VerdictOutcome.ALLOWED))


def test_approval_lets_a_waiting_verdict_pass_and_leaves_the_evidence(store: LoomDB) -> None:
    record_verdict(store, WAITING)
    assert not WAITING.is_allowed
    approved = approve_verdict(store, "v1", who="anna", at=2.0, comment="looked at the leaks")
    assert approve_verdict(store, "v1", who="anna", at=3.0) == approved
    assert approved.is_allowed
    assert approved == VERDICTS.require(store, "v1") == replace(WAITING, approved_by=("anna",))
    (event,) = [event for _, event in EVENTS.read(store, kind="verdict.approved")]
    assert (event.subject, event.data["who"], event.created_at) == ("v1", "anna", 2.0)


def test_approval_without_the_right_or_of_another_outcome_is_refused(store: LoomDB) -> None:
    record_verdict(store, WAITING)
    with pytest.raises(StoreError, match=r"may not approve.*Did you mean 'anna'"):
        approve_verdict(store, "v1", who="ana", at=2.0)
    record_verdict(store, replace(WAITING, id="v2", outcome=VerdictOutcome.REFUSED))
    with pytest.raises(StoreError, match="is refused: only one that waits"):
        approve_verdict(store, "v2", who="anna", at=2.0)
    with pytest.raises(StoreError, match="no id 'v3'"):
        approve_verdict(store, "v3", who="anna", at=2.0)
    assert not VERDICTS.require(store, "v1").approved_by
