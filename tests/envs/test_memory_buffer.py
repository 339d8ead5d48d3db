"""MemoryBuffer: answers count where the notes say the same, and notes outlive the episode."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from play_support import to_the_end

from loomrl.envs.memory import MemoryBufferEnvironment
from loomrl.envs.memory.note import NoteRefused, memory_of, read
from loomrl.envs.memory.persistent import CAPACITY
from loomrl.envs.memory.story import VALUES
from loomrl.errors import ConfigError
from loomrl.gym.memory import with_memory

PETS = VALUES["pet"]


async def open_task(family="topic", level=1, seed=0, memory=None):
    environment = MemoryBufferEnvironment()
    task = with_memory(environment.task(family, level, seed), memory)
    (message,) = await environment.reset(task)
    return environment, message.content


async def to_the_questions(environment, action=None):
    """The first question, after days on which the same is done; by default what the oracle does."""
    while environment._day < len(environment._story.days):
        step = await environment.step(action or environment.oracle())
    return step


@pytest.mark.parametrize("family", ["topic", "time", "update", "category"])
async def test_right_answer_that_was_not_noted_is_worth_nothing(family):
    for level in (1, 5, 10):
        environment, _ = await open_task(family, level)
        await to_the_questions(environment, "NEXT:")
        step = await environment.step(environment.oracle())
        assert (step.reward.success, step.terminated) == (0.0, True)


async def test_notes_alone_are_worth_nothing():
    environment, _ = await open_task("topic", 3)
    while environment._day < len(environment._story.days):
        step = await environment.step(environment.oracle())
        assert (step.reward.total, step.reward.parts) == (0.0, {})
    assert (await environment.step("ANSWER: nobody knows")).reward.total == 0.0


async def test_looking_things_up_costs_nothing():
    environment, _ = await open_task("topic", 1)
    await to_the_questions(environment)
    for _ in range(5):
        step = await environment.step("RETRIEVE: pet\nRETRIEVE: day 1")
        assert not step.terminated
    assert (await to_the_end(environment)).reward.total == 1.0


async def test_memory_is_closed_when_the_questions_come():
    environment, _ = await open_task("topic", 1)
    await to_the_questions(environment, "NEXT:")
    answer = environment._story.questions[0].answer
    who = environment._story.questions[0].text.split()[2].removesuffix("'s")
    step = await environment.step(f"STORE: {who} | {environment._story.topics} | {answer}\nANSWER: {answer}")
    assert step.reward.success == 0.0


async def test_last_answer_of_an_action_is_the_one_that_counts():
    for answers, success in (("wrong\nANSWER: {}", 1.0), ("{}\nANSWER: wrong", 0.0)):
        environment, _ = await open_task("topic", 1)
        await to_the_questions(environment)
        answer = environment._story.questions[0].answer
        assert (await environment.step(f"ANSWER: {answers.format(answer)}")).reward.success == success


async def test_day_does_not_end_before_what_was_refused_is_mended():
    environment, _ = await open_task("topic", 1)
    step = await environment.step("STORE: Ana, cat")
    assert "three parts" in step.observation[0].content
    assert environment._day == 0
    assert (await to_the_end(environment)).reward.success == 1.0


async def test_whoever_says_nothing_is_told_how_to_go_on():
    environment, _ = await open_task("topic", 1)
    assert "NEXT" in (await environment.step("I shall remember this.")).observation[0].content
    assert environment._day == 0
    assert "closed" in (await environment.step("NEXT:")).observation[0].content


async def test_too_many_commands_are_not_carried_out():
    environment, _ = await open_task("topic", 1)
    step = await environment.step("\n".join(f"STORE: n{n} | pet | cat" for n in range(41)))
    assert "at most 40" in step.observation[0].content
    assert not environment._memory.notes


async def test_what_no_longer_matters_has_to_be_forgotten():
    environment, _ = await open_task("topic", 8, 4)
    while environment._day < len(environment._story.days):
        action = "\n".join(line for line in environment.oracle().split("\n") if not line.startswith("FORGET"))
        step = await environment.step(action)
        if "full" in step.observation[0].content:
            return
    pytest.fail("there was room for everything")


async def test_names_may_come_in_any_order_but_all_of_them():
    for seed in range(200):
        environment, _ = await open_task("category", 2, seed)
        names = environment._story.questions[0].answer.split(", ")
        if len(names) > 1:
            break
    await to_the_questions(environment)
    for given_, success in ((" and ".join(names[::-1]), 1.0), (names[0], 0.0), (", ".join([*names, names[0]]), 0.0)):
        await environment.reset(environment.task("category", 2, seed))
        await to_the_questions(environment)
        assert (await environment.step(f"ANSWER: {given_}")).reward.success == success


@pytest.mark.parametrize(
    ("text", "day", "value"),
    [
        ("cat", None, "cat"),
        ("a CAT, I think", None, "cat"),
        ("2 cat 5 dog", None, "dog"),
        ("5 dog 2 cat", None, "dog"),
        ("2 cat 5 dog", 4, "cat"),
        ("2 cat 5 dog", 1, None),
        ("cat 5 dog", 1, "cat"),
        ("cat dog", None, None),
        ("2 cat 2 dog", 3, None),
        ("2 cat cat", 3, "cat"),
        ("unicorn", None, None),
        ("", None, None),
        ("٣ cat", 1, "cat"),
    ],
)
def test_notes_are_read_by_one_rule(text, day, value):
    assert read(text, values=PETS, day=day) == value


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.sampled_from(PETS)), min_size=1, max_size=6, unique_by=lambda pair: pair[0]
    )
)
def test_history_is_read_as_of_every_day(history):
    text = " ".join(f"{day} {value}" for day, value in history)
    for day in range(31):
        past = [pair for pair in history if pair[0] <= day]
        assert read(text, values=PETS, day=day) == (max(past)[1] if past else None)


def buffer(capacity=2):
    return memory_of((), capacity=capacity, longest=12)


def test_full_memory_takes_a_note_only_in_the_place_of_another():
    memory = buffer()
    memory.store("Ana | pet | cat", 1)
    memory.store("Ben | pet | dog", 1)
    with pytest.raises(NoteRefused, match="full"):
        memory.store("Cleo | pet | fox", 2)
    memory.store(" ana  | PET | fox", 2)
    memory.forget("Ben | pet")
    memory.store("Cleo | pet | owl", 3)
    assert [str(note) for note in memory.notes.values()] == ["ana | PET | fox (day 2)", "Cleo | pet | owl (day 3)"]


@pytest.mark.parametrize(
    "argument",
    [
        "",
        "a",
        "a | b",
        "a | b | c | d",
        "|||",
        "a | b | " + "c" * 13,
        "a" * 31 + " | b | c",
        "a | b | \ud800",
        "a | b | \x07",
    ],
)
def test_what_cannot_be_noted_is_refused(argument):
    with pytest.raises(NoteRefused):
        buffer().store(argument, 1)


def test_notes_are_found_by_topic_category_and_time():
    memory = buffer(3)
    memory.store("Ana | pet | cat", 1)
    memory.store("Ben | pet | dog", 2)
    memory.store("Ana | city | rome", 2)
    found = {
        query: [n.text for n in memory.retrieve(query)] for query in ("Ana", "pet", "Ana pet", "day 2", "cat", "x", "")
    }
    assert found == {
        "Ana": ["cat", "rome"],
        "pet": ["cat", "dog"],
        "Ana pet": ["cat"],
        "day 2": ["dog", "rome"],
        "cat": ["cat"],
        "x": [],
        "": [],
    }


async def episode(family, level, seed, memory):
    environment, _ = await open_task(family, level, seed, memory)
    step = await to_the_end(environment)
    assert step.reward.success == 1.0
    return json.loads(json.dumps(environment.memory()))


@pytest.mark.parametrize("family", ["persistent.topic", "persistent.update"])
async def test_a_memory_can_go_on_for_ever(family):
    rng = Random(1)
    memory = None
    for number in range(60):
        memory = await episode(family, rng.randint(1, 10), number, memory)
        assert len(memory["notes"]) <= CAPACITY
        assert len(json.dumps(memory)) < 2000


async def test_what_an_earlier_episode_noted_is_asked_for_and_not_told_again():
    memory = await episode("persistent.topic", 3, 1, None)
    environment, prompt = await open_task("persistent.topic", 3, 2, memory)
    old = [question for question in environment._story.questions if question.old]
    told = " ".join([prompt, *(day.news for day in environment._story.days)])
    assert old
    for question in old:
        who = question.text.split()[2].removesuffix("'s")
        assert f"{who}'s pet" not in told
        assert [who, "pet", question.answer] in [note[:3] for note in memory["notes"]]


async def test_what_was_noted_wrongly_is_not_asked_for():
    facts = {"Ana": "cat", "Ben": "dog", "Dan": "fox"}
    notes = [["Ana", "pet", "cat", 1], ["Ben", "pet", "owl", 2], ["Dan", "pet", "fox and owl", 3]]
    for seed in range(20):
        environment, _ = await open_task("persistent.topic", 10, seed, {"day": 3, "notes": notes, "facts": facts})
        assert {q.text for q in environment._story.questions if q.old} == {"What is Ana's pet now?"}
        assert (await to_the_end(environment)).reward.success == 1.0


async def test_memory_of_which_nothing_is_right_gives_way_to_an_invented_one():
    memory = {"day": 3, "notes": [["x", "y", "z", 1]], "facts": {"Ana": "cat"}}
    given_ = await open_task("persistent.topic", 2, 5, memory)
    invented = await open_task("persistent.topic", 2, 5)
    assert given_[1] == invented[1]


@pytest.mark.parametrize(
    "memory",
    [
        "text",
        {},
        {"day": 1, "notes": [], "facts": {"Ana": "unicorn"}},
        {"day": 1, "notes": [], "facts": {"Nobody": "cat"}},
        {"day": 1, "notes": [["a", "b", "c" * 100, 1]], "facts": {}},
        {"day": 1, "notes": [["a", "b", "\ud800", 1]], "facts": {}},
        {"day": 1, "notes": [["a", "b", "c", 1]] * 13, "facts": {}},
        {"day": -1, "notes": [], "facts": {}},
        {"day": 1, "notes": [], "facts": {}, "reward": 1},
    ],
)
async def test_what_no_episode_can_have_left_is_refused(memory):
    with pytest.raises(ConfigError, match="memory"):
        await open_task("persistent.topic", 1, 0, memory)


async def test_other_families_leave_nothing():
    environment, _ = await open_task("update", 2)
    await to_the_end(environment)
    assert environment.memory() is None
