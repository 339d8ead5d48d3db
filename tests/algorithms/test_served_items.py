"""Items that are learnt from frozen rows: which answers, which pairs, how old they are, and in which order."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.algorithms.language.passes import DataPasses, place_in_pass
from loomrl.algorithms.language.served.collector import Ancestry
from loomrl.algorithms.language.served.item import ServedAnswer, ServedItem, batches, items_of
from loomrl.algorithms.language.served.lesson import sample_answer, sample_correction, sample_threads, swap_answers
from loomrl.config import DPO, KTO, RAFT, RLOO, Experiment
from loomrl.errors import ConfigError, DataError
from loomrl.inference.chat import ChatTemplate
from loomrl.store import open_store
from loomrl.store.datasets import DatasetRow
from loomrl.store.forgettings import FORGETTINGS, Forgetting
from loomrl.types import End, Feedback, Message, Reward, Task, Tokens, Trajectory, Turn
from tests.inference.sample_models import tiny_tokenizer
from tests.store.test_forgettings import made


def places(seed: int) -> Callable[[ServedItem], bytes]:
    return lambda item: place_in_pass(seed, 0, item.key)


def row(id: str, **changes: Any) -> DatasetRow:
    made = DatasetRow(
        part="train",
        hub="endpoint-assistant",
        position=1,
        trajectory=id,
        sha256="",
        domain="coding",
        prompt=f"prompt of {id}",
        tokens=2,
        versions=("r/3",),
        reward=None,
        reward_row="",
        feedback=(),
    )
    return replace(made, **changes)


def said(kind: str, trajectory: str, value: float, call: str = "", **data: Any) -> Feedback:
    id = f"{kind}-{trajectory}-{call}-{value}-{sorted(data)}"
    return Feedback(id=id, trajectory=trajectory, source="human", kind=kind, value=value, call=call, data=data)


def by_trajectory(*feedback: Feedback) -> dict[str, list[Feedback]]:
    return {one.trajectory: [each for each in feedback if each.trajectory == one.trajectory] for one in feedback}


def named(items: Sequence[ServedItem]) -> list[str]:
    """The answers of every item by trajectory and call, the preferred one first."""
    return [" over ".join(f"{one.row.trajectory}.{one.call}".strip(".") for one in item.answers) for item in items]


def rated(**totals: float) -> list[DatasetRow]:
    return [row(name, prompt="p", reward=total) for name, total in totals.items()]


def test_rewards_teach_where_there_are_ids() -> None:
    rows = [row("a", reward=0.5), row("b", reward=0.5, tokens=0), row("c")]
    assert named(items_of(RLOO(), rows, {})) == ["a"]
    with pytest.raises(DataError, match=r"kind=rloo can learn from none of 2.*token ids and a reward"):
        items_of(RLOO(), rows[1:], {})


def test_thumbs_judge_the_answer_that_they_are_about_by_their_mean() -> None:
    feedback = by_trajectory(
        said("thumb", "a", 1.0, "a1"),
        said("stars", "a", 0.8, "a1"),
        said("thumb", "a", 0.0, "a2"),
        said("thumb", "b", 1.0),
        said("thumb", "b", 0.0),
        said("thumb", "c", 1.0),
        said("stars", "c", 0.0),
        said("left", "d", 0.0),
    )
    items = items_of(KTO(balance=False, desirable=2.0), [row(name) for name in "abcd"], feedback)
    assert (named(items), [item.label for item in items]) == (["a.a1", "a.a2", "b"], [2.0, -1.0, -1.0])


def test_balance_makes_both_sides_count_alike_and_one_side_alone_is_refused() -> None:
    rows = [row(name) for name in "abcd"]
    feedback = by_trajectory(said("thumb", "a", 0.0), *(said("thumb", name, 1.0) for name in "bcd"))
    assert [item.label for item in items_of(KTO(), rows, feedback)] == pytest.approx([-2.0, 2 / 3, 2 / 3, 2 / 3])
    with pytest.raises(DataError, match="all 3 are desirable"):
        items_of(KTO(), rows, {name: feedback[name] for name in "bcd"})


def test_choice_pairs_the_chosen_answer_with_the_one_it_was_chosen_over() -> None:
    feedback = by_trajectory(
        said("choice", "a", 1.0, "a2", over="a1"),
        said("choice", "a", 0.0, "a1", under="a2"),
        said("choice", "c", 0.0, under="b"),
        said("choice", "b", 1.0, over="c"),
    )
    assert named(items_of(DPO(), [row(name) for name in "abc"], feedback)) == ["a.a2 over a.a1", "b over c"]
    outside = by_trajectory(said("choice", "a", 1.0, "a2", over="z1"), said("choice", "z", 0.0, "z1", under="a2"))
    with pytest.raises(DataError, match="kind=dpo"):
        items_of(DPO(), [row("a")], outside)


def test_correction_is_preferred_to_what_it_corrects() -> None:
    (item,) = items_of(DPO(), [row("a")], by_trajectory(said("correction", "a", 0.2, "a1", text="better")))
    assert (item.text, named([item]), item.rows) == ("better", ["a.a1 over a.a1"], (row("a"),))


def test_rewards_pair_answers_to_the_same_prompt_that_differ_enough() -> None:
    rows = rated(a=0.1, b=0.9, c=0.5, d=0.4)
    assert named(items_of(DPO(), [*rows, row("z", reward=0.0)], {})) == ["b over a", "c over d"]
    assert named(items_of(DPO(margin=0.5), rows, {})) == ["b over a"]


def test_best_of_each_domain_are_followed_and_nothing_below_the_least_reward() -> None:
    rows = [row(f"c{n}", reward=n / 4) for n in range(4)] + [row(f"w{n}", domain="w", reward=n / 10) for n in range(3)]
    assert named(items_of(RAFT(best=0.5), [*rows, row("x")], {})) == ["c3", "c2", "w2", "w1"]
    assert named(items_of(RAFT(best=0.5, min_reward=0.5), rows, {})) == ["c3", "c2"]
    with pytest.raises(DataError, match="kind=raft"):
        items_of(RAFT(min_reward=2.0), rows, {})


# -- order -------------------------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    size=st.integers(1, 40),
    group=st.integers(1, 8),
    seed=st.integers(0, 5),
)
def test_a_pass_has_every_item_once_and_domains_together(sizes: list[int], size: int, group: int, seed: int) -> None:
    items = [
        ServedItem(answers=(ServedAnswer(row(f"{d}.{n}", domain=str(d))),))
        for d, count in enumerate(sizes)
        for n in range(count)
    ]

    def made() -> list[list[ServedItem]]:
        return batches(items, size=size, group=group, place=places(seed), age=lambda item: 0)

    assert made() == made()
    counts = Counter(item.rows[0].trajectory for batch in made() for item in batch)
    assert counts == Counter(item.rows[0].trajectory for item in items)
    assert all(size <= len(batch) <= size + group for batch in made()[:-1])
    for batch in made() if group > 1 else ():
        in_batch = Counter(item.domain for item in batch)
        assert all(count > 1 or sizes[int(domain)] == 1 for domain, count in in_batch.items())


@given(st.integers(0, 99), st.integers(2, 9), st.sampled_from([1, 4]), st.sets(st.integers(0, 59), min_size=1))
def test_batches_before_an_item_do_not_depend_on_it(seed: int, size: int, group: int, gone: set[int]) -> None:
    """But for the part before the last one of a domain, which takes in an item that would be alone."""
    items = [ServedItem(answers=(ServedAnswer(row(str(n), domain=str(n % 3))),)) for n in range(60)]
    left = [item for number, item in enumerate(items) if number not in gone]
    whole, without = (
        batches(each, size=size, group=group, place=places(seed), age=lambda item: 0) for each in (items, left)
    )
    taken = {str(number) for number in gone}
    touched = next(at for at, batch in enumerate(whole) if taken & {item.rows[0].trajectory for item in batch})
    alike = next((at for at, (a, b) in enumerate(zip(whole, without, strict=False)) if a != b), len(without))
    assert alike == touched or (alike < touched and group > 1)


def test_older_answers_go_first() -> None:
    items = [ServedItem(answers=(ServedAnswer(row(str(n))),)) for n in range(40)]
    order = batches(items, size=10, group=1, place=places(0), age=lambda item: int(item.rows[0].trajectory) % 4)
    ages = [int(item.rows[0].trajectory) % 4 for batch in order for item in batch]
    assert ages == sorted(ages, reverse=True)


# -- age ---------------------------------------------------------------------------------------------------------------

LINE = Ancestry({"new": 5, "old": 15}, {"new": 5, "old": 10})
"""Behind new/5, which began with old/10."""


def test_age_counts_versions_through_the_runs_behind_a_policy() -> None:
    assert [LINE.age([one]) for one in ("new/5", "new/3", "new/0", "old/10", "old/2")] == [0, 2, 5, 5, 13]
    assert LINE.age(["new/5", "old/9"]) == 6
    assert LINE.age(["new/6"]) is None
    assert LINE.age(["other/1"]) is None
    assert LINE.age(["new/5", "other/1"]) is None
    assert LINE.age([]) is None


def test_run_that_was_made_again_stands_for_the_one_that_answered(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        made(db, "base", 0, 3)
        made(db, "first", 0, 8, parent="base/3")
        made(db, "anew", 0, 7, parent="base/3")
        plan = {"replays": [{"run": "first", "into": "anew", "targets": {"first/8": 7}}]}
        FORGETTINGS.append(db, [Forgetting(id="f", endpoint="e", people=(), plan=plan, created_at=1.0)])
        ancestry = Ancestry.of(db, "anew/7", None)
    assert [ancestry.age([one]) for one in ("anew/7", "first/8", "first/5", "base/3", "base/0")] == [0, 0, 2, 7, 10]
    assert ancestry.age(["first/9"]) is None


def test_checkpoint_of_another_order_is_not_gone_on_from() -> None:
    experiment = Experiment.parse({"name": "x", "data": {"dataset": "d"}, "algorithm": {"kind": "kto"}})
    passes = DataPasses(experiment, "r", None, about={"dataset": "d"})  # type: ignore[arg-type]
    passes.load_state_dict({**passes.state_dict(), "done": 3})
    assert passes.done == 3
    with pytest.raises(ConfigError, match=r"'r' began when batches were drawn in another order.*another --run"):
        passes.load_state_dict({"done": 3})


def test_tokens_are_dated_as_the_training_counts() -> None:
    tokens = Tokens.of([1, 2, 3, 4], [False, True, True, True], [0, -1, -1, -1], [-1, 5, 4, 10])
    assert LINE.date_tokens(tokens, ["new/5"]).versions_T.tolist() == [-1, 0, -1, 0]
    assert LINE.date_tokens(tokens, ["new/5", "old/10"]).versions_T.tolist() == [-1, -10, -11, -5]


# -- samples -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chat() -> ChatTemplate:
    return ChatTemplate(tiny_tokenizer())


def spoken(chat: ChatTemplate, *said: tuple[str, str], lost: int | None = None, **extra: Any) -> Trajectory:
    """A session of questions and answers, of which the ids are lost from a turn on."""
    turns: list[Turn] = []
    for number, (question, answer) in enumerate(said):
        asked = (Message("user", question),)
        prompt_T = chat.opening(asked).ids if not turns else chat.following(asked).ids[1:]
        answer_T = chat.encode(answer)
        mask = np.repeat([False, True], [len(prompt_T), len(answer_T)])
        ids = np.concatenate([prompt_T, answer_T])
        tokens = Tokens(ids, mask, np.where(mask, -0.5, 0).astype(np.float32), np.where(mask, 3, -1).astype(np.int32))
        turns.append(Turn(asked, answer, tokens=None if lost is not None and number >= lost else tokens))
    names = [f"c{number}/0" for number in range(len(said))]
    about = {"session": {"calls": [names], "stopped": {}, **extra}}
    return Trajectory(
        id="s",
        task=Task("a", "", "", 1, 0),
        turns=tuple(turns),
        end=End.TERMINATED,
        reward=Reward(),
        group="s",
        extra=about,
    )


TALK = (("one?", "1"), ("two?", "22"), ("three?", "333"))


def shown(chat: ChatTemplate, sample: Any) -> str:
    """The learnt part of a sample, as text."""
    return chat.decode(sample.ids_T[sample.mask_T])


@pytest.mark.parametrize("lost", [None, 0, 1, 2])
def test_lost_ids_are_made_again_from_the_text_by_the_template(chat: ChatTemplate, lost: int | None) -> None:
    whole = sample_answer(spoken(chat, *TALK), "", chat)
    again = sample_answer(spoken(chat, *TALK, lost=lost), "", chat)
    assert whole is not None
    assert again is not None
    np.testing.assert_array_equal(whole.ids_T, again.ids_T)
    np.testing.assert_array_equal(whole.mask_T, again.mask_T)


def test_answer_of_one_call_is_learnt_in_its_thread_up_to_there(chat: ChatTemplate) -> None:
    talk = spoken(chat, *TALK)
    second = sample_answer(talk, "c1", chat)
    assert second is not None
    assert shown(chat, second) == "22"
    assert "three" not in chat.decode(second.ids_T)
    assert sample_answer(talk, "c1/0", chat) is not None
    assert sample_answer(talk, "c9", chat) is None
    every = sample_answer(talk, "", chat)
    assert every is not None
    assert every.mask_T.sum() == len("122333") + 3


def test_correction_stands_in_the_place_of_the_answer(chat: ChatTemplate) -> None:
    for talk in (spoken(chat, *TALK), spoken(chat, *TALK, lost=0)):
        made = sample_correction(talk, "c1", "two", chat)
        assert made is not None
        better, worse = made
        assert (shown(chat, better), shown(chat, worse)) == ("two", "22")
        asked = int(better.mask_T.argmax())
        np.testing.assert_array_equal(better.ids_T[:asked], worse.ids_T[:asked])
        last = sample_correction(talk, "", "three", chat)
        assert last is not None
        assert shown(chat, last[0]) == "three"
    assert sample_correction(spoken(chat, *TALK), "c9", "x", chat) is None


def test_what_a_rule_stopped_is_not_followed(chat: ChatTemplate) -> None:
    (sample,) = sample_threads(spoken(chat, *TALK, stopped={"c1/0": "secrets"}), chat)
    assert sample.mask_T.sum() == len("1333") + 2
    assert not sample_threads(spoken(chat, TALK[0], stopped={"c0/0": "secrets"}), chat)


def test_further_threads_of_text_alone_are_followed_too(chat: ChatTemplate) -> None:
    bare = Turn((Message("user", "one?"), Message("assistant", "1"), Message("user", "other?")), "4")
    talk = replace(spoken(chat, TALK[0], lost=0), threads=((bare,),))
    first, second = sample_threads(talk, chat)
    assert (shown(chat, first), shown(chat, second)) == ("1", "4")


def test_mismatched_samples_have_the_prompt_of_one_and_the_answer_of_the_next(chat: ChatTemplate) -> None:
    samples = [made for one in TALK if (made := sample_answer(spoken(chat, one), "", chat)) is not None]
    others = swap_answers(samples, context=100)
    assert [shown(chat, other) for other in others] == ["22", "333", "1"]
    for sample, other in zip(samples, others, strict=True):
        asked = int(sample.mask_T.argmax())
        np.testing.assert_array_equal(sample.ids_T[:asked], other.ids_T[:asked])
    assert all(len(other.ids_T) <= 8 for other in swap_answers(samples, context=8))
