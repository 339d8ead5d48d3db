"""Prompts with a reward function: what people start from who come from TRL."""

import csv
import hashlib
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from loomrl.errors import ConfigError, EpisodeError, ScorerError
from loomrl.gym.adapters.prompts import Prompts
from loomrl.gym.curriculum import HELD_OUT_SEEDS
from loomrl.types import Message

HERE = "tests.gym.prompt_rewards"
ROWS = tuple({"prompt": f"What is {n} + {n}?", "answer": str(2 * n), "kind": ("odd", "even")[n % 2]} for n in range(60))


def prompts(**settings):
    return Prompts({"rows": ROWS, "reward": f"{HERE}:is_right", **settings})


def ask(environment, seeds, family="prompts", level=1):
    import asyncio

    async def all_of():
        return {(await environment.reset(environment.task(family, level, seed)))[0].content for seed in seeds}

    return asyncio.run(all_of())


async def test_the_first_answer_is_rewarded_and_ends_the_task():
    environment = prompts(answer="answer")
    (message,) = await environment.reset(environment.task("prompts", 1, 5))
    assert message.role == "user"
    right = environment.oracle()
    number = int(message.content.split()[2])
    assert right == str(2 * number)
    step = await environment.step(right)
    assert (step.reward.total, step.reward.success, step.terminated) == (1.0, 1.0, True)
    await environment.reset(environment.task("prompts", 1, 5))
    assert (await environment.step("no")).reward.total == 0.0


def test_what_is_held_out_is_never_trained_on_and_stays_so():
    environment = prompts(held_out=0.3)
    trained = ask(environment, range(500))
    judged = ask(environment, range(HELD_OUT_SEEDS.start, HELD_OUT_SEEDS.start + 500))
    assert not trained & judged
    assert trained | judged == {row["prompt"] for row in ROWS}
    more = (*ROWS, *({"prompt": f"What is {n}?", "answer": "1"} for n in range(50)))
    assert judged <= ask(prompts(rows=more, held_out=0.3), range(HELD_OUT_SEEDS.start, HELD_OUT_SEEDS.start + 2000))


def test_a_column_names_families_and_another_levels():
    rows = [{**row, "difficulty": 1 + number // 30} for number, row in enumerate(ROWS)]
    environment = prompts(rows=rows, family="kind", level="difficulty", held_out=0.3)
    assert environment.families == ("even", "odd")
    said = ask(environment, range(300), "even", 2)
    assert said <= {row["prompt"] for row in rows if row["kind"] == "even" and row["difficulty"] == 2}
    with pytest.raises(EpisodeError, match="'odd' has no rows of level 7"):
        ask(environment, range(1), "odd", 7)


async def test_messages_are_asked_as_they_are_and_answered_as_a_message():
    talk = [{"role": "system", "content": "Repeat."}, {"role": "user", "content": "Say blue"}]
    environment = prompts(rows=[{"prompt": talk}], reward=f"{HERE}:told", held_out=0)
    assert await environment.reset() == (Message("system", "Repeat."), Message("user", "Say blue"))
    assert (await environment.step("blue")).reward.total == 1.0


async def test_a_function_may_be_asynchronous_and_have_a_range_of_its_own():
    environment = prompts(reward=f"{HERE}:waits", reward_range=(0, 5), solved_at=2.0)
    assert environment.reward_range == (0, 5)
    await environment.reset()
    reward = (await environment.step("x" * 20)).reward
    assert (reward.total, reward.success) == (2.0, 1.0)
    await environment.reset()
    assert (await environment.step("x" * 19)).reward.success == 0.0


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("breaks", "KeyError: 'column'"),
        ("hangs", "longer than 0.05 s"),
        ("says", "returned 'good'"),
        ("runs_away", r"returned \[nan\]: a number from 0 to 1"),
        ("waits", "returned 3.0: a number from 0 to 1"),
    ],
)
async def test_a_function_without_a_reward_is_no_reward_of_zero(function, said):
    environment = prompts(reward=f"{HERE}:{function}", timeout_s=0.05)
    await environment.reset()
    with pytest.raises(ScorerError, match=said):
        await environment.step("x" * 30)


async def test_a_second_grader_is_asked_and_pays_nothing():
    environment = prompts(reward=f"{HERE}:waits", check=f"{HERE}:is_right", answer="answer")
    assert prompts().correct() is None
    for said, right in ((environment.oracle, 1.0), (lambda: "no", 0.0)):
        await environment.reset(environment.task("prompts", 1, 5))
        assert environment.correct() is None
        answer = said()
        step = await environment.step(answer)
        assert (step.reward.total, environment.correct()) == (len(answer) / 10, right)


async def test_a_second_grader_without_a_figure_fails_the_attempt():
    environment = prompts(check=f"{HERE}:waits")
    await environment.reset()
    with pytest.raises(ScorerError, match=r"check '.*waits' returned 3.0: a number from 0 to 1 is needed\."):
        await environment.step("x" * 30)


def as_lines(file):
    file.write_text("\n".join(map(json.dumps, ROWS)) + "\n")


def as_csv(file):
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)


@pytest.mark.parametrize(
    ("ending", "write"),
    [
        ("jsonl", as_lines),
        ("json", lambda file: file.write_text(json.dumps(ROWS))),
        ("csv", as_csv),
        ("parquet", lambda file: parquet.write_table(pa.Table.from_pylist(list(ROWS)), file)),
    ],
)
def test_rows_come_from_files_of_four_kinds(tmp_path, ending, write):
    file = tmp_path / f"rows.{ending}"
    write(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    environment = prompts(rows=(), file=str(file), sha256=digest)
    assert ask(environment, range(500)) == ask(prompts(), range(500))
    with pytest.raises(ConfigError, match=f"has the SHA-256 {digest}"):
        prompts(rows=(), file=str(file), sha256="0" * 64)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rows": ()}, "set file"),
        ({"file": "x.jsonl"}, "not both"),
        ({"reward": ""}, "set reward"),
        ({"reward": "nowhere:fn"}, "nowhere"),
        ({"prompt": "question"}, "row 1 of rows: has no 'question'. It has prompt, answer, kind"),
        ({"rows": [{"prompt": " "}]}, "is no prompt"),
        ({"rows": [{"prompt": [{"role": "wizard", "content": "x"}]}]}, "the roles are system, user"),
        ({"level": "answer"}, "levels go from 1 to 10"),
        ({"rows": ROWS[:1]}, "has no prompts held out"),
        ({"rows": (), "file": "missing.jsonl"}, "cannot be read"),
        ({"rows": (), "file": "rows.xlsx"}, ".parquet is needed"),
        ({"max_steps": 2}, "max_steps"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_asked(settings, said):
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        prompts(**settings)
