"""Every table gives back the records that it was given, on both databases."""

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from loomrl.errors import IdTaken, StoreError
from loomrl.store import LoomDB
from loomrl.store.ab_tests import AB_TESTS
from loomrl.store.archives import ARCHIVES
from loomrl.store.bus_messages import MESSAGES
from loomrl.store.datasets import DATASET_ROWS, DATASETS
from loomrl.store.deployments import DEPLOYMENTS
from loomrl.store.endpoints import ENDPOINTS
from loomrl.store.environments import ENVIRONMENTS
from loomrl.store.erasures import ERASURES
from loomrl.store.events import EVENTS
from loomrl.store.feedback import FEEDBACK
from loomrl.store.judgements import JUDGEMENTS
from loomrl.store.keys import KEYS
from loomrl.store.log import Log, Records
from loomrl.store.policies import EVALUATIONS
from loomrl.store.releases import RELEASES
from loomrl.store.replicas import REPLICAS
from loomrl.store.rewards import REWARDS
from loomrl.store.runs import POLICIES, RUNS
from loomrl.store.sessions import OPT_OUTS, SESSIONS
from loomrl.store.trainings import TRAININGS
from loomrl.store.verdicts import VERDICTS
from loomrl.types import Message, Verdict

LOGS: list[Log[Any]] = [
    AB_TESTS,
    ARCHIVES,
    MESSAGES,
    DATASETS,
    DEPLOYMENTS,
    ENDPOINTS,
    ENVIRONMENTS,
    ERASURES,
    EVENTS,
    FEEDBACK,
    JUDGEMENTS,
    KEYS,
    EVALUATIONS,
    RELEASES,
    REWARDS,
    TRAININGS,
    VERDICTS,
]
KEYED: list[tuple[Records[Any], dict[str, Any]]] = [
    (RUNS, {}),
    (POLICIES, {}),
    (REPLICAS, {}),
    (SESSIONS, {}),
    (OPT_OUTS, {"endpoint": "e"}),
    (DATASET_ROWS, {"dataset": "d", "number": 1}),
]


def sample(hint: Any, number: int) -> Any:
    """A value of a type, another one for each number."""
    plain = {str: f"é'{number}", int: number, float: number + 0.5, bytes: bytes([0, number])}
    if hint in plain:
        return plain[hint]
    if get_origin(hint) is UnionType:
        return sample(get_args(hint)[0], number) if number % 2 else None
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return list(hint)[number % len(list(hint))]
    if hint is Verdict:
        return Verdict(bool(number % 2), ("why",))
    if get_origin(hint) is tuple and get_args(hint)[0] is Message:
        return (Message("user", "é"),)
    if get_origin(hint) is tuple:
        return tuple(sample(each, number) for each in get_args(hint)[:1] if each in plain)
    assert issubclass(get_origin(hint), Mapping), hint
    value = sample(get_args(hint)[1], number) if get_args(hint)[1] in plain else [1, None, {"x": "é"}]
    return {"b": value, "a": value}


def records(table: Records[Any], count: int) -> list[Any]:
    hints = get_type_hints(table.record)
    return [
        table.record(**{one.name: sample(hints[one.name], number) for one in fields(table.record)})
        for number in range(1, count + 1)
    ]


def test_every_log_gives_back_what_was_appended_in_order(store: LoomDB) -> None:
    for log in LOGS:
        new = records(log, 3)
        positions = log.append(store, new)
        assert positions == sorted(positions)
        assert log.read(store) == list(zip(positions, new, strict=True))
        assert log.read(store, after=positions[0], limit=1) == [(positions[1], new[1])]
        assert log.recent(store, before=positions[2], limit=5) == [(positions[1], new[1]), (positions[0], new[0])]
        assert log.latest(store, limit=2) == [new[2], new[1]]
        assert log.last(store) == positions[2]
        name = next(iter(new[0].__slots__))
        assert log.newest(store, **{name: getattr(new[0], name)}) == new[0]


def test_every_other_table_gives_back_what_was_inserted(store: LoomDB) -> None:
    for table, more in KEYED:
        (one,) = records(table, 1)
        with store.write() as connection:
            table.insert(connection, [one], **more)
        assert table.fetch(store, table.select(**more)) == [one]


def test_same_record_again_is_one_and_another_under_its_id_is_refused(store: LoomDB) -> None:
    (one,) = records(EVALUATIONS, 1)
    turned = replace(one, report=dict(reversed(list(one.report.items()))))
    with store.write() as connection:
        assert EVALUATIONS.insert_once(connection, one)
        assert not EVALUATIONS.insert_once(connection, turned), "the order of keys is no content"
        assert not EVALUATIONS.insert_once(connection, replace(one, created_at=9.0), changing=("created_at",))
    with pytest.raises(IdTaken, match="report"), store.write() as connection:
        EVALUATIONS.insert_once(connection, replace(one, report={}))


def test_row_that_is_no_record_is_refused_by_its_table(store: LoomDB) -> None:
    row = EVALUATIONS.row(records(EVALUATIONS, 1)[0]) | {"report": "[]"}
    with store.write() as connection:
        connection.execute(EVALUATIONS.table.insert().values(**row))
    with pytest.raises(StoreError, match="evaluations has a row that cannot be read"):
        EVALUATIONS.latest(store)
