"""Multimodal: the picture holds the answer, the text does not, and right answers are recognised however spelt."""

from collections import Counter, defaultdict
from io import BytesIO
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from loomrl.envs.multimodal import MultimodalEnvironment
from loomrl.envs.multimodal.canvas import RGB, draw_scene
from loomrl.envs.multimodal.chart_question import KIND_OF, Sheet
from loomrl.envs.multimodal.environment import FAMILIES
from loomrl.envs.multimodal.plot import ABOVE, BOTTOM, LABELS, TOP, Chart, _place, draw_chart
from loomrl.envs.multimodal.quiz import exact, spelt
from loomrl.envs.multimodal.scene import COLOURS, LOOKS, Shape, ShapeLook, ShapeScene
from loomrl.envs.multimodal.scene_question import f1, triples
from loomrl.gym.generate import rng_of
from loomrl.picture import size_of

LEVELS = range(1, 11)


async def show_task(family, level, seed, **settings):
    environment = MultimodalEnvironment(settings)
    (message,) = await environment.reset(environment.task(family, level, seed))
    (picture,) = message.images
    return environment, message.content, picture


def open_task(picture):
    return Image.open(BytesIO(picture)).convert("RGB")


async def success(environment, answer):
    return (await environment.step(f"<answer>{answer}</answer>")).reward.success


async def test_the_colour_can_be_read_off_the_pixels_alone():
    for seed in range(40):
        environment, _, picture = await show_task("scene.vqa", 1, seed)
        seen = Counter(open_task(picture).get_flattened_data())
        (colour,) = [name for name in COLOURS if seen[RGB[name]]]
        assert await success(environment, colour) == 1


@pytest.mark.parametrize("family", list(FAMILIES))
async def test_the_same_task_is_the_same_file_and_other_seeds_are_others(family):
    pictures = [(await show_task(family, 5, seed))[2] for seed in (1, 1, 2)]
    assert pictures[0] == pictures[1] != pictures[2]


async def test_a_blind_policy_gets_the_same_question_and_a_black_picture():
    _, question, picture = await show_task("chart.vqa", 3, 7)
    environment, same, dark = await show_task("chart.vqa", 3, 7, blind=True)
    assert same == question
    assert size_of(dark) == size_of(picture)
    assert set(open_task(dark).get_flattened_data()) == {(0, 0, 0)}
    assert await success(environment, environment._quiz.answer) == 1


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("level", LEVELS)
def test_no_answer_to_a_question_is_much_likelier_than_chance(family, level):
    environment = MultimodalEnvironment()
    answers = defaultdict(Counter)
    for seed in range(800):
        quiz = FAMILIES[family](level, rng_of(environment.task(family, level, seed)))
        answers[quiz.question][quiz.answer] += 1
    asked = [found for found in answers.values() if found.total() >= 100]
    floor = max(0.1, environment.guess_floor.get(family, 0))
    best = sum(max(found.values()) for found in asked)
    total = sum(found.total() for found in asked)
    assert best <= total * (floor + 0.06), "the maximum of a few hundred draws is a little above the mean"


@pytest.mark.parametrize("family", list(FAMILIES))
async def test_episodes_are_small_and_level_one_is_short(family):
    _, question, picture = await show_task(family, 10, 3)
    assert len(picture) < 8000
    _, question, picture = await show_task(family, 1, 3)
    assert len(question.split()) < 65
    assert max(size_of(picture)) <= 128


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        ("red circle", "Red  circle."),
        ("red circle", "a red circle"),
        ("3", "three"),
        ("30", "30%"),
        ("2, 1", "2,1"),
        ("2, 1", "2 1"),
        ("B 7", "b, 07"),
    ],
)
def test_other_spellings_of_a_right_answer_are_right(answer, given):
    assert exact(answer)(given) == 1


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        ("red circle", "red circle or blue circle"),
        ("red circle", "red"),
        ("red circle", "circle red"),
        ("red", "r\u0435d"),
        ("1", "１"),
        ("1", "-1"),
        ("1", "1.0e0"),
        ("2, 1", "1, 2"),
        ("12", "1 2"),
        ("0", ""),
        ("3", "3" + " " * 5000),
    ],
)
def test_other_answers_are_wrong(answer, given):
    assert exact(answer)(given) == 0


@given(st.sampled_from(list(FAMILIES)), st.text(max_size=200))
def test_any_text_gets_a_score(family, text):
    quiz = FAMILIES[family](5, Random(0))
    score = quiz.score(text)
    assert 0 <= score <= 1
    assert score < 1 or (quiz.answer in text and spelt(text) == spelt(quiz.answer))


def scene_of(*shapes):
    return ShapeScene(3, 64, tuple(Shape(look, cell) for look, cell in shapes))


RED = ShapeLook("red", "circle")
BLUE = ShapeLook("blue", "square")
PINK = ShapeLook("pink", "star")


def test_triples_join_neighbours_in_rows_and_columns_with_nothing_between():
    scene = scene_of((RED, (0, 0)), (BLUE, (0, 1)), (PINK, (0, 2)))
    assert triples(scene) == {("red circle", "left of", "blue square"), ("blue square", "left of", "pink star")}
    assert triples(scene_of((RED, (0, 1)), (BLUE, (2, 1)))) == {("red circle", "above", "blue square")}
    assert not triples(scene_of((RED, (0, 0)), (BLUE, (1, 1))))


RIGHT = frozenset({("red circle", "left of", "blue square"), ("red circle", "above", "pink star")})


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("red circle | left of | blue square\nred circle | above | pink star", 1),
        ("Pink star|below|red circle\n- blue square | right of | red circle", 1),
        ("red circle | left of | blue square", 2 / 3),
        ("red circle | left of | blue square\nred circle | left of | blue square", 2 / 3),
        ("red circle | left of | blue square\nred circle | right of | blue square", 2 / 4),
        ("red circle | left of | blue square\nhere it is", 2 / 4),
        ("red circle | left of | blue square | above | pink star", 0),
        ("red circle | left of, above | blue square", 0),
        ("", 0),
        ("red circle | left of | blue square\n" * 400, 0),
    ],
)
def test_captions_earn_the_f1_of_their_triples(text, score):
    assert f1(text, RIGHT) == pytest.approx(score)


def test_a_list_of_all_triples_earns_nothing():
    every = [f"{a} | {relation} | {b}" for a in LOOKS for relation in ("left of", "above") for b in LOOKS]
    assert f1("\n".join(every), RIGHT) == 0


@given(st.sampled_from(list(FAMILIES)), st.sampled_from(LEVELS), st.integers(0, 10**6))
def test_the_answer_of_every_task_is_right_and_no_other_is(family, level, seed):
    quiz = FAMILIES[family](level, Random(seed))
    assert quiz.score(quiz.answer) == 1
    assert quiz.score(f"{quiz.answer} 1") < 1
    assert quiz.score("") == 0


def test_a_bar_is_as_high_as_its_value():
    chart = Chart("bar", {"red": (1, 7, TOP)})
    image = open_task(draw_chart(chart))
    step = (chart.height - BOTTOM - ABOVE) / TOP
    for at, value in enumerate((1, 7, TOP)):
        column = [image.getpixel((round(_place(chart, at)), y)) == RGB["red"] for y in range(chart.height - BOTTOM)]
        assert sum(column) == pytest.approx(value * step, abs=1)


def test_two_lines_through_one_point_are_both_seen():
    seen = Counter(open_task(draw_chart(Chart("line", {"red": (4, 4), "blue": (4, 4)}))).get_flattened_data())
    assert seen[RGB["red"]] > 20
    assert seen[RGB["blue"]] > 20


@given(st.sampled_from(LEVELS), st.integers(0, 10**6))
def test_superlatives_of_a_chart_have_one_answer(level, seed):
    rng = Random(seed)
    sheet = Sheet.of(level, rng)
    _, answer, chart = KIND_OF["largest"](sheet, rng)
    (values,) = chart.series.values()
    assert [LABELS[at] for at, value in enumerate(values) if value == max(values)] == [answer.split()[0]]
    _, answer, chart = KIND_OF["rise"](sheet, rng)
    (values,) = chart.series.values()
    steps = [after - before for before, after in pairwise(values)]
    assert steps.count(max(steps)) == 1
    assert answer.split()[2] == str(max(steps) * chart.unit)
    _, answer, chart = KIND_OF["gap"](sheet, rng)
    gaps = [abs(one - other) for one, other in zip(*chart.series.values(), strict=True)]
    assert gaps.count(max(gaps)) == 1
    assert answer == f"{LABELS[gaps.index(max(gaps))]} {max(gaps) * chart.unit}"
    assert all(1 <= value <= TOP for values in chart.series.values() for value in values)


@given(st.integers(0, 10**6))
def test_a_pie_is_whole(seed):
    rng = Random(seed)
    _, answer, chart = KIND_OF["slice"](Sheet.of(4, rng), rng)
    shares = [share for (share,) in chart.series.values()]
    assert sum(shares) == 100
    assert min(shares) >= 5
    assert int(answer) in shares


def test_every_shape_and_colour_is_visible_on_every_background():
    for tint in range(4):
        pictures = {draw_scene(ShapeScene(3, 64, (Shape(look, (1, 1)),), tinted=tint)) for look in LOOKS}
        assert len(pictures) == len(LOOKS)
