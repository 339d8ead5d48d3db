"""Selections of what was served: filters that count, frozen content, holdout, and what remains of a deleted person."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from loomrl.config import DataSelection, Experiment, HubConfig
from loomrl.errors import ConfigError, DataError, StoreError
from loomrl.feedback.content import Contents, fingerprint
from loomrl.feedback.dataset import evenly, freeze
from loomrl.hub import open_hub
from loomrl.run.record import begin_run
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.datasets import Dataset, find_dataset, list_datasets, list_policies_trained_on, read_rows
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.events import EVENTS
from loomrl.store.policies import record_policy
from loomrl.types import End, Failure, Message, PolicyVersion, Source, Task, Tokens, Trajectory, Turn
from tests.feedback.served_support import reward, thumbs

DAY = 86_400.0
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()


def session(id: str, asked: str = "", *, domain: str = "coding", at: float = NOON, **changes: Any) -> Trajectory:
    """A session of one question and answer."""
    ids = Tokens.of([5, 6, 7], [False, True, True], [0.0, -1.0, -2.0], [-1, 3, 3])
    turn = Turn((Message("user", asked or f"question {id}"),), f"answer {id}", tokens=ids)
    return Trajectory(
        **{
            "id": id,
            "task": Task("assistant", "r/3", "session", 1, 0),
            "turns": (turn,),
            "end": End.TERMINATED,
            "reward": replace(turn.reward),
            "group": id,
            "first_version": 3,
            "last_version": 3,
            "source": Source.PRODUCTION,
            "finished_at": at,
            "extra": {"session": {"outcome": {"domain": domain}, "versions": ["r/3"], "calls": [[f"c-{id}/0"]]}},
            **changes,
        }
    )


@pytest.fixture
def db(store_url: str) -> Iterator[LoomDB]:
    with open_store(store_url) as opened:
        begin_run(opened, Experiment(name="r"), {}, id="r", kind="train")
        for number in (3, 4):
            version(opened, number)
        set_endpoint(opened, "assistant", [Arm(name="stable", policy="r/4")], at=1.0)
        yield opened


def version(db: LoomDB, number: int, *, run: str = "r", parent: str | None = None, **data: Any) -> None:
    """Put a policy version on record."""
    record_policy(
        db,
        PolicyVersion(
            id=f"{run}/{number}",
            number=number,
            url="u",
            run=run,
            algorithm="kto",
            experiment="e",
            parent=parent,
            data=data,
            code="c",
        ),
    )


def fill(url: str, *attempts: Trajectory, hub: str = "endpoint-assistant") -> None:
    with open_hub(beside(url, hub), HubConfig()) as opened:
        opened.append(attempts)


def frozen(db: LoomDB, url: str, now: float = 9.0, **selection: Any) -> Dataset:
    settings = {"endpoints": ["assistant"], "holdout": 0.0, **selection}
    return freeze(db, url, DataSelection.parse(settings), now=now)


def names(db: LoomDB, made: Dataset, part: Any = "train") -> list[str]:
    return [row.trajectory for row in read_rows(db, made.id, part=part)]


def test_data_set_names_trajectories_and_the_judgements_that_held(db: LoomDB, store_url: str) -> None:
    fill(store_url, session("a"), session("b"))
    reward(db, {"a": 0.2})
    reward(db, {"a": 0.7}, round=1)
    thumbs(db, {"a": 1.0})
    made = frozen(db, store_url)
    first, second = read_rows(db, made.id)
    assert (first.trajectory, first.hub, first.position) == ("a", "endpoint-assistant", 1)
    assert (first.reward, first.reward_row, first.feedback) == (0.7, "reward-1-a", ("thumb-a",))
    assert (first.domain, first.tokens, first.versions) == ("coding", 2, ("r/3",))
    assert (second.reward, second.reward_row, second.feedback) == (None, "", ())
    assert made.parent == "r/4"
    assert made.content["sizes"] == {"train": 2, "holdout": 0}
    assert find_dataset(db, "assistant") == find_dataset(db, made.id) == made
    assert [event.subject for _, event in EVENTS.read(db, kind="dataset.frozen")] == [made.id]


def test_the_same_content_is_the_same_data_set_and_a_new_judgement_makes_another(db: LoomDB, store_url: str) -> None:
    fill(store_url, session("a"))
    made = frozen(db, store_url)
    assert frozen(db, store_url, now=99.0).id == made.id
    reward(db, {"a": 0.5})
    assert frozen(db, store_url).id != made.id
    assert [one.created_at for one in list_datasets(db)] == [9.0, 9.0]


def test_every_filter_takes_what_it_says_and_counts_the_rest(db: LoomDB, store_url: str) -> None:
    turn = session("d").turns[0]
    fill(
        store_url,
        session("a"),
        session("b"),
        session("c", at=NOON - DAY),
        session("d", turns=(turn, turn)),
        session("e", turns=(replace(turn, action="x" * 200),)),
        session("f"),
        session("g", domain="writing"),
        session("h", end=End.FAILED, failure=Failure("policy", "Hang", "stuck")),
    )
    reward(db, {"a": 0.2, "b": 0.9, "g": 0.6})
    reward(db, {"f": 0.3}, confidence=0.1, round=1)
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"domains": ["cod*"]}, "abcdef", "domains"),
        ({"since": "2026-07-01T00:00:00Z"}, "abdefg", "since"),
        ({"until": "2026-07-01"}, "c", "until"),
        ({"max_turns": 1}, "abcefg", "max_turns"),
        ({"max_characters": 100}, "abcdfg", "max_characters"),
        ({"min_reward": 0.5}, "bg", "min_reward"),
        ({"max_reward": 0.5}, "af", "max_reward"),
        ({"min_reward": 0.0}, "abfg", "without reward"),
        ({"min_confidence": 0.5}, "abg", "min_confidence"),
        ({"sources": ["production"]}, "abcdefg", ""),
    ]
    for selection, kept, filter in cases:
        made = frozen(db, store_url, **selection)
        assert "".join(names(db, made)) == kept
        counts = {"failed": 1, **({filter: 7 - len(kept)} if filter else {})}
        if filter in ("min_reward", "max_reward", "min_confidence"):
            counts |= {"without reward": 3, filter: 4 - len(kept)}
        assert (made.content["counts"], made.content["read"]) == (counts, 8)


def test_empty_selection_says_which_filter_left_out_how_many(db: LoomDB, store_url: str) -> None:
    fill(store_url, session("a"), session("b"), session("c", domain="writing"))
    reward(db, {"a": 0.2})
    with pytest.raises(DataError, match=r"of 3 trajectories in endpoint-assistant, domains left out 1, without reward"
                                        r" left out 1, min_reward left out 1. "
                                        r"Most were left out by 'domains': loosen domains="):  # fmt: skip
        frozen(db, store_url, domains=["coding"], min_reward=0.5)
    with pytest.raises(DataError, match="holdout keeps 3"):
        frozen(db, store_url, holdout=0.999999)
    assert not list_datasets(db)


def test_hub_that_nobody_filled_and_endpoint_that_is_unknown_are_named(db: LoomDB, store_url: str) -> None:
    with pytest.raises(DataError, match="no hub 'endpoint-assistant'"):
        frozen(db, store_url)
    with pytest.raises(DataError, match=r"endpoints: .*'helper'"):
        frozen(db, store_url, endpoints=["helper"])
    with pytest.raises(DataError, match=r"id='nothing' is unknown.*loomrl data freeze"):
        find_dataset(db, "nothing")
    fill(store_url, session("a"))
    with pytest.raises(StoreError, match="Did you mean 'r/4'"):
        frozen(db, store_url, parent="rr/4")
    with pytest.raises(ConfigError, match="name an endpoint or an agent"):
        DataSelection.parse({})


def test_text_of_other_agents_stands_beside_what_was_served(db: LoomDB, store_url: str) -> None:
    fill(store_url, session("a"))
    bare = replace(session("z").turns[0], tokens=None)
    foreign = session("z", turns=(bare,), extra={}, task=Task("agent-7", "", "research", 1, 0))
    fill(store_url, foreign, hub="agent-7")
    made = frozen(db, store_url, agents=["7"])
    assert [(row.hub, row.trajectory, row.domain, row.tokens) for row in read_rows(db, made.id)] == [
        ("endpoint-assistant", "a", "coding", 2),
        ("agent-7", "z", "research", 0),
    ]


# -- how many --------------------------------------------------------------------------------------------------------


def test_limit_takes_the_latest_and_balance_no_more_of_one_domain_than_of_another(db: LoomDB, store_url: str) -> None:
    many = [session(f"a{n}", at=NOON + n) for n in range(6)] + [session(f"w{n}", domain="writing") for n in range(2)]
    fill(store_url, *many)
    assert names(db, frozen(db, store_url, limit=2)) == ["a4", "a5"]
    assert names(db, frozen(db, store_url, balance="domain")) == ["a4", "a5", "w0", "w1"]
    made = frozen(db, store_url, balance="domain", limit=5)
    assert names(db, made) == ["a3", "a4", "a5", "w0", "w1"]
    assert made.content["counts"] == {"balance": 3}


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 50), min_size=1), st.integers(1, 200))
def test_parts_of_a_limit_are_as_even_as_the_domains_allow(counts: dict[str, int], limit: int) -> None:
    room = evenly(counts, limit)
    assert sum(room.values()) == min(limit, sum(counts.values()))
    assert all(room[name] <= counts[name] for name in counts)
    short = {name for name in counts if room[name] < counts[name]}
    assert all(room[one] + 1 >= most for one in short for most in room.values())


# -- holdout ---------------------------------------------------------------------------------------------------------


def test_held_out_prompts_are_the_same_in_every_data_set_and_in_no_training_part(db: LoomDB, store_url: str) -> None:
    fill(store_url, *(session(f"s{n}", f"Question {n % 50}") for n in range(200)))
    made = frozen(db, store_url, holdout=0.2)
    held = {row.prompt for row in read_rows(db, made.id, part="holdout")}
    learnt = {row.prompt for row in read_rows(db, made.id, part="train")}
    assert not held & learnt
    assert len(held | learnt) == 50
    assert 3 <= len(held) <= 18
    other = frozen(db, store_url, holdout=0.2, max_turns=3, limit=20)
    assert {row.prompt for row in read_rows(db, other.id, part="holdout")} == held
    more = frozen(db, store_url, holdout=0.4)
    assert held < {row.prompt for row in read_rows(db, more.id, part="holdout")}


# -- what was learnt before, and what is gone ------------------------------------------------------------------------


def test_what_an_ancestor_was_trained_on_is_left_out_and_lineage_is_known_both_ways(db: LoomDB, store_url: str) -> None:
    fill(store_url, session("a"), session("b"))
    first = frozen(db, store_url)
    begin_run(db, Experiment(name="other"), {}, id="other", kind="train")
    version(db, 0, run="other", parent="r/4", dataset=first.id)
    fill(store_url, session("c"))
    again = frozen(db, store_url)
    assert names(db, again) == ["a", "b", "c"], "the stable policy is not trained on it"
    made = frozen(db, store_url, parent="other/0")
    assert names(db, made) == ["c"]
    assert made.content["counts"] == {"parent": 2}
    assert list_policies_trained_on(db, first.id) == ["other/0"]
    assert [one.id for one in list_datasets(db, trajectory="a")] == [again.id, first.id]


def test_deleted_trajectory_is_gone_and_a_changed_one_is_refused(db: LoomDB, store_url: str) -> None:
    fill(store_url, session("a"), session("b"), session("c"))
    rows = read_rows(db, frozen(db, store_url).id)
    with open_store(beside(store_url, "endpoint-assistant")) as hub, hub.write() as connection:
        connection.execute(text("DELETE FROM trajectories WHERE id = 'b'"))
    with Contents(store_url) as contents:
        read = [contents.read(row) for row in rows]
        assert [one and one.id for one in read] == ["a", None, "c"]
        with pytest.raises(DataError, match="not what was frozen"):
            contents.read(replace(rows[0], sha256="0" * 64))


def test_fingerprint_sees_every_text_and_every_token() -> None:
    one = session("a")
    (turn,) = one.turns
    tokens = turn.tokens
    others = [
        replace(one, turns=(replace(turn, action="answer b"),)),
        replace(one, turns=(replace(turn, observation=(Message("user", "question b"),)),)),
        replace(one, turns=(replace(turn, tokens=None),)),
        replace(one, turns=(replace(turn, tokens=replace(tokens, logprobs_T=tokens.logprobs_T + np.float32(1e-6))),)),
        replace(one, threads=(one.turns,)),
    ]
    prints = Counter(map(fingerprint, [one, *others, replace(one, id="z", group="z")]))
    assert prints[fingerprint(one)] == 2, "an id is nothing to learn from"
    assert len(prints) == len(others) + 1
