"""MetaReasoning: a second, independent way to every answer; thinking is free, twins are answered both."""

import re
from fractions import Fraction
from itertools import combinations
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.meta import MetaReasoningEnvironment
from loomrl.envs.meta.assumption import incomplete_problem
from loomrl.envs.meta.calibration import ConfidenceQuestion, calibration, evidence
from loomrl.envs.meta.twin import BIASES
from loomrl.envs.meta.verification import verification
from tests.envs.play_support import opener, to_the_end

LEVELS = range(1, 11)
CASES = [(level, seed) for level in LEVELS for seed in range(25)]


def numbers(text):
    return [int(digits) for digits in re.findall(r"\d+", text)]


def calculate(a, sign, b):
    return {"+": a + b, "-": a - b, "×": a * b}[sign]


# chains


def first_wrong(prompt):
    known = {"a": int(re.match(r"a = (\d+)", prompt)[1])}
    for step in re.findall(r"(\d+)\. (\w) = (\w) (.) (\w+) = (\d+)\n", prompt):
        number, name, left, sign, right, written = step
        value = calculate(known[left], sign, known[right] if right in known else int(right))
        if value != int(written):
            return f"{number}, {value}"
        known[name] = int(written)
    return "none"


def test_the_first_wrong_step_is_the_first_that_does_not_follow():
    for level, seed in CASES:
        (question,) = verification(level, Random(seed))
        assert question.answer == first_wrong(question.prompt)
        assert question.mark(question.answer).right


@pytest.mark.parametrize(
    ("text", "right"), [("4, 128", True), ("step 4: 128.", True), ("4 128", True), ("4, 129", False), ("3, 128", False)]
)
def test_step_and_value_both_count(text, right):
    (question,) = verification(1, Random("verification:1:0"))
    assert question.answer == "4, 128"
    assert question.mark(text).right is right


# what is missing


def equations(prompt, things):
    """The story as rows of a linear system, and its question as one more row."""

    def row(text, *signs):
        named = re.findall(rf"\b({'|'.join(things)})\b", text)
        made = [0] * len(things)
        for name, sign in zip(named, signs or [1] * len(named), strict=True):
            made[things.index(name)] += sign
        return made

    _, told = prompt.split(". ", 1)
    *sentences, question = re.split(r"(?<=\.) ", told)
    rows = []
    values = []
    for sentence in sentences:
        (number,) = numbers(sentence)
        if "together" in sentence:
            signs = (1, 1)
            value = number
        elif "times" in sentence:
            signs = (1, -number)
            value = 0
        elif "more" in sentence:
            signs = (1, -1)
            value = number
        elif "less" in sentence:
            signs = (-1, 1)
            value = number
        else:
            signs = (1,)
            value = number
        rows.append(row(sentence, *signs))
        values.append(value)
    return rows, values, row(question, *((1, -1) if "more" in question else ()))


def follows(rows, asked):
    return np.linalg.matrix_rank(np.array([*rows, asked])) == np.linalg.matrix_rank(np.array(rows))


def test_what_is_said_to_be_missing_is_missing_and_what_has_an_answer_has_that_answer():
    lacking = 0
    for level, seed in CASES:
        (question,) = incomplete_problem(level, Random(seed))
        things = list(question.things)
        rows, values, asked = equations(question.prompt, things)
        if follows(rows, asked):
            solution = np.linalg.lstsq(np.array(rows, float), np.array(values, float), rcond=None)[0]
            assert question.answer == str(round(float(np.array(asked) @ solution)))
            continue
        lacking += 1
        units = np.eye(len(things), dtype=int).tolist()
        enough = {thing for thing, unit in zip(things, units, strict=True) if follows([*rows, unit], asked)}
        assert enough == set(question.lacking)
    assert 0.2 < lacking / len(CASES) < 0.5


def test_only_the_one_asked_form_names_what_is_missing():
    question = next(q for (q,) in (incomplete_problem(5, Random(seed)) for seed in range(50)) if q.lacking)
    name = question.lacking[0]
    other = next(thing for thing in question.things if thing not in question.lacking)
    assert question.mark(f"Missing: the {name}.").right
    assert not question.mark(f"missing {other}").right
    assert not question.mark("12").right
    for text in (f"missing {name} or {other}", f"missing {name}, {other}", name, "missing", f"not missing {name}"):
        assert question.mark(text) is None


# how sure


def chances(prompt):
    """The probabilities that the prompt gives, worked out again."""
    if prompt.startswith("What is"):
        tokens = re.findall(r"\d+|[-+×]", prompt.partition(" divided by")[0])
        value = int(tokens[0])
        for sign, number in zip(tokens[1::2], tokens[2::2], strict=True):
            value = calculate(value, sign, int(number))
        divisor = re.search(r"divided by (\d+)", prompt)
        return {str(value % int(divisor[1]) if divisor else value): Fraction(1)}
    if prompt.startswith("A die"):
        faces = int(re.search(r"with (\d+) faces", prompt)[1])
        said = [(int(trust), int(face)) for trust, face in re.findall(r"\((\d+)%\) says (\d+)", prompt)]
        weights = {
            str(face): prod(Fraction(t, 100) if face == f else Fraction(100 - t, 100) / (faces - 1) for t, f in said)
            for face in range(1, faces + 1)
        }
        return {face: weight / sum(weights.values()) for face, weight in weights.items()}
    if prompt.startswith("A bag"):
        held, *changes = re.split(r"\. ?", prompt.removeprefix("A bag holds balls: "))
        counts = {colour: int(n) for n, colour in re.findall(r"(\d+) (\w+)", held)}
        for n, colour, _, other in re.findall(r"(\d+) (\w+) are (added|painted (\w+))", ".".join(changes)):
            counts[colour] += -int(n) if other else int(n)
            if other:
                counts[other] += int(n)
        return {colour: Fraction(n, sum(counts.values())) for colour, n in counts.items() if n}
    drawn = re.search(r"put back: (.+?)\. Which", prompt)[1].split(", ")
    total = Fraction(0)
    seen = {}
    for share, whole, held in re.findall(r"\((\d+) in (\d+)\): ([^.]+)\.", prompt):
        bag = {colour: int(n) for n, colour in re.findall(r"(\d+) (\w+)", held)}
        size = sum(bag.values())
        weight = Fraction(int(share), int(whole)) * prod(Fraction(bag[colour], size) for colour in drawn)
        total += weight
        for colour, n in bag.items():
            seen[colour] = seen.get(colour, Fraction(0)) + weight * Fraction(n, size)
    return {colour: weight / total for colour, weight in seen.items()}


@pytest.mark.parametrize("family", [calibration, evidence])
def test_the_probabilities_are_those_that_the_text_gives(family):
    for level, seed in CASES:
        (question,) = family(level, Random(seed))
        assert question.chances == chances(question.prompt), question.prompt
        best = sorted(question.chances.values())[-2:]
        assert len(best) == 1 or best[0] < best[1]
        mark = question.mark(question.answer)
        assert mark.right
        assert mark.loss < 1e-6


@given(st.integers(0, 100), st.integers(0, 9))
def test_to_say_what_one_believes_loses_least(percent, seed):
    question = next(q for (q,) in (calibration(5, Random(f"{seed}{n}")) for n in range(99)) if len(q.chances) == 1)
    belief = percent / 100
    right = question.best
    wrong = str(int(question.best) + 1)

    def expected_value(confidence):
        return sum(
            chance * question.mark(f"{value}, {confidence}%").loss
            for value, chance in ((right, belief), (wrong, 1 - belief))
        )

    # the policy answers one value and is right with probability `belief`
    losses = [expected_value(confidence) for confidence in range(101)]
    assert losses.index(min(losses)) == percent


def test_in_evidence_the_probability_must_be_right_and_in_calibration_it_need_not():
    (question,) = evidence(5, Random(1))
    percent = round(100 * float(question.chances[question.best]))
    assert question.mark(f"{question.best}, {percent}%").right
    assert not question.mark(f"{question.best}, {percent + 3}%").right
    (question,) = calibration(5, Random(1))
    assert question.mark(f"{question.best}, 3%").right


@pytest.mark.parametrize(
    "text", ["red", "red, 101%", "red, -1%", "red or blue, 40%", "red, 4e1", "red, ٤٠", "50%", "red,,4"]
)
def test_an_answer_without_a_confidence_has_not_the_form(text):
    (question,) = evidence(5, Random(1))
    assert question.mark(text) is None


# twins


def work_out(kind, prompt):
    """The answer to one twin."""
    if kind == "anchor":
        total = sum(int(n) * int(price) for n, price in re.findall(r"(\d+) at (\d+) euros", prompt))
        return total * (100 if prompt.endswith("in cents?") else 1)
    if kind == "sunk_cost":
        plans = [(int(cost), int(value)) for cost, value in re.findall(r"\((\d+), (\d+)\)", prompt)]
        left = int(re.search(r"(\d+) coins are left", prompt)[1])
        best = max(
            sum(value - cost for cost, value in some)
            for size in range(len(plans) + 1)
            for some in combinations(plans, size)
            if sum(cost for cost, _ in some) <= left
        )
        return best + (left if "end" in prompt else 0)
    if kind == "framing":
        people = numbers(prompt)[0]
        dying = []
        for text in re.findall(r"One programme ([^.]+)\.", prompt):
            n, *percent = numbers(text)
            if text.startswith("saves"):
                dying.append((people - n) * (1 - Fraction(percent[0] if percent else 0, 100)))
            else:
                dying.append(n * Fraction(percent[0] if percent else 100, 100))
        return people - min(dying) if "save on average" in prompt else min(dying)
    raise AssertionError(kind)


@pytest.mark.parametrize("kind", ["anchor", "sunk_cost", "framing"])
def test_both_twins_have_the_answer_that_their_words_give(kind):
    make = next(bias for bias in BIASES if bias.__name__ == kind)
    for level, seed in CASES:
        for question in make(level, Random(seed)):
            assert question.number == work_out(kind, question.prompt), question.prompt


def test_twins_of_conjunction_agree_on_who_is_all_at_once():
    make = next(bias for bias in BIASES if bias.__name__ == "conjunction")
    for level, seed in CASES:
        first, second = make(level, Random(seed))
        rates = [int(percent) for percent in re.findall(r"(\d+)%", first.prompt)]
        people = int(re.search(r"Of (\d+) of them", first.prompt)[1])
        every = people * prod(Fraction(rate, 100) for rate in rates)
        assert first.number == people * Fraction(rates[0], 100) - every
        assert second.number == people - every
        assert numbers(second.prompt)[-2] == every


def test_twins_of_streaks_do_not_depend_on_the_streak():
    make = next(bias for bias in BIASES if bias.__name__ == "streak")
    for level, seed in CASES:
        first, second = make(level, Random(seed))
        wheels = [
            (int(n), int(red)) for n, red in re.findall(r"has (\d+) equal fields, (\d+) of them red", first.prompt)
        ]
        spins = int(re.search(r"in (\d+) spins", first.prompt)[1])
        reds = [Fraction(spins * red, fields) for fields, red in wheels]
        pays = re.search(r"brings (\d+) coins, other colours cost (\d+)", first.prompt)
        if pays:
            worth = sum(red * int(pays[1]) - (spins - red) * int(pays[2]) for red in reds)
            assert (first.number, second.number) == (worth, -worth)
        else:
            assert (first.number, second.number) == (sum(reds), len(wheels) * spins - sum(reds))


def test_twins_of_base_rates_add_up_to_the_whole():
    make = next(bias for bias in BIASES if bias.__name__ == "base_rate")
    for level, seed in CASES:
        first, second = make(level, Random(seed))
        results = dict(re.findall(r"(Test \w) (positive|negative)", second.prompt))
        ill = well = Fraction(re.search(r"([\d.]+)% of all people", second.prompt)[1]) / 100
        well = 1 - ill
        for name, hit, false in re.findall(
            r"(Test \w) finds (\d+)% of the ill, and is wrong about (\d+)%", second.prompt
        ):
            found = Fraction(int(hit), 100)
            wrong = Fraction(int(false), 100)
            ill *= found if results[name] == "positive" else 1 - found
            well *= wrong if results[name] == "positive" else 1 - wrong
        assert second.number == round(100 * well / (ill + well))
        assert first.number + second.number == 100
        assert re.findall(r"\d+ of 20", first.prompt)


@pytest.mark.parametrize("kind", BIASES)
def test_what_tempts_is_not_the_answer_and_no_answer_is_worth_guessing(kind):
    for level in LEVELS:
        answers = [kind(level, Random(seed))[0].number for seed in range(150)]
        assert max(map(answers.count, answers)) / 150 <= 0.15


def test_a_share_is_read_as_a_share_and_percent_as_percent():
    question = ConfidenceQuestion(
        "?", {"red": Fraction(2, 5), "blue": Fraction(3, 10)}, ("red", "blue"), tolerance=0.01
    )
    for text in ("red, 40", "red, 40%", "red, 0.4", "red, .40", "red (40%)", "red: 40 percent", "red 40.0"):
        mark = question.mark(text)
        assert mark.right, text
    for text in ("red, 0.4%", "red, 4", "red, 1", "red, 1.0", "red, 100"):
        mark = question.mark(text)
        assert not mark.right, text
    assert question.mark("red, 0.4 or 0.3") is None
    assert question.mark("red, 101") is None


FAMILIES = MetaReasoningEnvironment.families


open_task = opener(MetaReasoningEnvironment, "verification", 5)


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_perfect_answer_earns_one_with_thoughts_or_without(family):
    for thoughts in (0, 3):
        environment = await open_task(family)
        earned = [(await environment.step("THINK: step by step.")).reward.total for _ in range(thoughts)]
        step = await to_the_end(environment)
        assert sum(earned) == 0.0
        assert step.reward.total == pytest.approx(1.0, abs=1e-6)
        assert step.reward.success == 1.0


@pytest.mark.parametrize("family", FAMILIES)
async def test_thinking_alone_earns_nothing_and_comes_to_an_end(family):
    environment = await open_task(family)
    steps = [await environment.step(f"THINK: {environment.oracle().replace(':', ' ')}") for _ in range(6)]
    assert [step.observation[0].content for step in steps] == ["Go on."] * 3 + ["Now ANSWER."] * 3
    assert all(step.reward.total == step.reward.success == 0.0 and not step.terminated for step in steps)


@pytest.mark.parametrize("wrong", [(0,), (1,), (0, 1)])
async def test_twins_must_both_be_right(wrong):
    environment = await open_task("bias", 3)
    first, second = [
        await environment.step("ANSWER: 987654321" if number in wrong else environment.oracle()) for number in range(2)
    ]
    assert first.observation[0].content.startswith("Second question.")
    assert (first.reward.total, first.terminated) == (0.0, False)
    assert (second.reward.total, second.reward.success, second.terminated) == (0.0, 0.0, True)


async def test_confidence_costs_brier_whether_the_answer_is_right_or_wrong():
    environment = await open_task("calibration", 1, 0)
    value, _, _ = environment.oracle().removeprefix("ANSWER: ").partition(",")
    for confidence, total in ((100, 1.0), (50, 1 - 0.05), (0, 0.8)):
        await environment.reset(environment.task("calibration", 1, 0))
        assert (await environment.step(f"ANSWER: {value}, {confidence}%")).reward.total == pytest.approx(total)
    for confidence, total in ((100, -0.2), (50, -0.05), (0, 0.0)):
        await environment.reset(environment.task("calibration", 1, 0))
        step = await environment.step(f"ANSWER: {int(value) + 1}, {confidence}%")
        assert (step.reward.total, step.reward.success) == (pytest.approx(total), 0.0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "action", ["", "It is 7.", "ANSWER:", "ANSWER: I do not know", "So I answer: 7", "ANSWER: 1e3", "ANSWER: ٧"]
)
async def test_what_has_not_the_form_is_told_the_form_and_costs_nothing(family, action):
    environment = await open_task(family)
    step = await environment.step(action)
    assert "ANSWER:" in step.observation[0].content
    assert (step.reward.total, step.terminated) == (0.0, False)
    assert (await to_the_end(environment)).reward.success == 1.0


async def test_a_thought_that_mentions_an_answer_is_no_answer_but_a_command_after_it_is():
    environment = await open_task()
    assert not (await environment.step(f"THINK: perhaps {environment.oracle()}?")).terminated
    assert (await environment.step(f"THINK: perhaps\n{environment.oracle()}")).reward.success == 1.0
