"""The four kinds of conversation: what solves them, and what must not."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.dialogue import DialogueEnvironment
from loomrl.envs.dialogue.debate import GREED_FROM, THRIFT_FROM, Argument, Debate, DebateGame
from loomrl.envs.dialogue.interview import CORRECTION_FROM, Interview
from loomrl.envs.dialogue.negotiation import Negotiation
from loomrl.envs.dialogue.scene import DialogueAct, parse_act, slots
from loomrl.envs.dialogue.support import Support
from loomrl.gym.episode import Attempt, run_episode
from loomrl.gym.guard import check_step
from loomrl.gym.policy import OraclePolicy
from loomrl.types import End
from tests.envs.play_support import answer_queue, people


async def open_task(family, level=1, seed=0, **settings):
    environment = DialogueEnvironment(settings)
    (message,) = await environment.reset(environment.task(family, level, seed))
    return environment, message.content


async def play_out(environment, change=lambda act: act):
    """The oracle's game, with each of its texts changed."""
    for _ in range(60):
        step = await environment.step(change(environment.oracle()))
        if step.terminated:
            return step
    raise AssertionError("the conversation does not end")


FAMILIES = DialogueEnvironment.families
LEVELS = (1, 3, 5, 7, 10)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", LEVELS)
async def test_the_oracle_earns_all_there_is(family, level):
    for seed in range(5):
        environment, _ = await open_task(family, level, seed)
        step = await play_out(environment)
        assert step.reward.success == 1
        assert step.reward.total == pytest.approx(environment.reward_range[1] if level > 2 else 1.0)


@pytest.mark.parametrize("family", FAMILIES)
async def test_without_manners_there_is_success_and_no_bonus(family):
    environment, _ = await open_task(family, 3, 1)
    step = await play_out(environment, lambda text: text.split("\n")[-1])
    assert (step.reward.total, step.reward.success) == (1.0, 1.0)


@pytest.mark.parametrize("family", FAMILIES)
async def test_manners_earn_nothing_without_success(family):
    environment, _ = await open_task(family, 3, 1)
    polite = environment.oracle().split("\n")[0]
    while not (step := await environment.step(f"{polite}\n{environment.hacks()[-4]}")).terminated:
        pass
    assert (step.reward.total, step.reward.success) == (0.0, 0.0)


@pytest.mark.parametrize("family", FAMILIES)
async def test_talk_without_a_command_uses_turns_up_until_the_partner_leaves(family):
    environment, _ = await open_task(family)
    for _ in range(30):
        step = await environment.step("Let us talk.")
        if step.terminated:
            break
        assert "did not understand" in step.observation[0].content
    assert (step.terminated, step.reward.success) == (True, 0.0)


def test_an_act_is_the_last_command_and_the_line_said_before_it():
    text = "I could ASK: city.\nSAY: Hello.\nASK: day\nrest"
    assert parse_act(text, ("ASK", "ANSWER")) == DialogueAct("Hello.", "ASK", "day")
    assert parse_act("ASK: day\nSAY: Hello.", ("ASK",)) == DialogueAct("", "ASK", "day")
    assert parse_act("SAY: Hello.", ("ASK",)) is None


@pytest.mark.parametrize("text", ["", "price", "price=", "price=1, price=2", "cost=1", "price=1; day=2, x", "price=1,"])
def test_slots_that_are_not_clear_are_none(text):
    found = slots(text, ("price", "day"))
    assert found is None or found == {"price": ""}


def interview(level, seed=0):
    return Interview(level, Random(seed))


def test_a_guest_who_changes_their_mind_wants_what_they_said_last():
    for seed in range(40):
        scene = interview(10, seed)
        before = dict(scene._truth)
        while (act := scene.oracle()).verb == "ASK":
            scene.reply(act)
        if before != scene._truth:
            old = ", ".join(f"{name}={value}" for name, value in before.items())
            assert scene.reply(DialogueAct("", "ANSWER", old)).success == 0
            return
    raise AssertionError(f"no guest changed their mind from level {CORRECTION_FROM} on")


def test_every_value_follows_from_what_the_guest_said():
    for seed in range(30):
        scene = interview(5, seed)
        told = {}
        while (act := scene.oracle()).verb == "ASK":
            told[act.argument] = scene.reply(act).text
        for name, text in told.items():
            value = scene._truth[name]
            numbers = [int(word.strip(".,")) for word in text.split() if word.strip(".,").isdecimal()]
            if value.isdecimal() and value not in text:
                assert int(value) in (numbers[0] + numbers[1], numbers[0] - numbers[1])


def test_every_slot_must_be_right():
    scene = interview(5)
    while (act := scene.oracle()).verb == "ASK":
        scene.reply(act)
    for slot in scene._slots:
        wrong = {**scene._truth, slot.name: next(v for v in slot.values if v != scene._truth[slot.name])}
        assert scene.reply(DialogueAct("", "ANSWER", ", ".join(f"{n}={v}" for n, v in wrong.items()))).success == 0
    assert scene.reply(DialogueAct("", "ANSWER", act.argument.upper())).success == 1


@pytest.mark.parametrize("level", range(1, 11))
def test_no_deal_beats_the_oracles_and_a_poor_deal_earns_nothing(level):
    for seed in range(5):
        scene = Negotiation(level, Random(seed))
        demand = scene._demand
        floor = scene._floor
        goal = None
        while not (reply := scene.reply(goal := scene.oracle())).ended:
            pass
        assert reply.success == 1
        best = scene._mine.worth(slots(goal.argument, tuple(scene._mine.points)))
        for draw in range(200):
            offer = slots(scene.random(Random(draw)).removeprefix("OFFER: "), tuple(scene._mine.points))
            if scene._theirs.worth(offer) >= floor:
                assert scene._mine.worth(offer) <= best
        assert Negotiation(level, Random(seed)).reply(DialogueAct("", "ACCEPT", "offer")).success == 0
        assert demand >= floor


def test_a_partner_tells_what_an_issue_is_worth():
    scene = Negotiation(5, Random(1))
    for issue, options in scene._theirs.points.items():
        told = scene.reply(DialogueAct("", "ASK", issue)).text
        assert told == f"My points for {issue}: " + ", ".join(f"{o} = {points}" for o, points in options.items()) + "."


def test_a_partner_that_wants_progress_does_not_yield_to_repetition():
    scene = next(
        found for found in (Negotiation(10, Random(seed)) for seed in range(9)) if found._demand > found._floor
    )
    refused = scene.oracle()
    scene.reply(refused)
    after_one = scene._demand
    for _ in range(3):
        scene.reply(refused)
    assert scene._demand == after_one


def test_an_argument_rebuts_by_topic_source_and_year():
    study = Argument("Y1", ("cost",), "study", 1990)
    survey = Argument("Y2", ("cost",), "survey", 2020)
    other = Argument("Y3", ("noise",), "study", 2024)
    play = DebateGame(("cost",), (study, survey, other), (Argument("T1", ("cost",), "survey", 2010),))
    assert [place for place, _ in play.rebuttals(0, play.opening(0), frozenset())] == [0, 1]
    assert [place for place, _ in play.rebuttals(0, play.opening(0), frozenset({0}))] == [1]


@pytest.mark.parametrize("level", [GREED_FROM, THRIFT_FROM, 10])
def test_hard_debates_are_not_won_by_a_simple_rule(level):
    for seed in range(10):
        play = Debate(level, Random(seed))._play
        assert not play.wins_by(max)
        assert level < THRIFT_FROM or not play.wins_by(min)


def test_a_debate_lost_by_one_bad_move_is_lost():
    scene = Debate(3, Random(0))
    good = {scene._mine[place].name for place in scene._play.winning(0, scene._claim, frozenset())}
    bad = next(one.name for one in scene._mine if one.name not in good)
    reply = scene.reply(DialogueAct("", "ARGUE", bad))
    assert (reply.ended, reply.success) == (True, 0.0)


def support(level=6, late=None, seed=0):
    for number in range(seed, seed + 200):
        scene = Support(level, Random(number))
        if late is None or (scene._waited > 7) == late:
            return scene
    raise AssertionError("no such customer")


def said(scene, change=lambda text: text):
    while (act := scene.oracle()).verb == "ASK":
        scene.reply(act)
    return scene.reply(DialogueAct(change(act.say), act.verb, act.argument)).success


@pytest.mark.parametrize("late", [True, False])
def test_an_apology_is_due_where_the_rule_says_so_and_nowhere_else(late):
    assert said(support(late=late)) == 1
    without = said(support(late=late), lambda text: text.replace("We apologise.", ""))
    beside = said(support(late=late), lambda text: f"{text} We apologise.")
    assert (without, beside) == (float(not late), float(late))
    assert said(support(late=True), lambda text: text.replace("We apologise", "We do not apologise")) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text.replace(" not ", " ") if " not " in text else text.replace("is possible", "is not possible"),
        lambda text: f"{text} {text.replace(' not ', ' ')} {text.replace('is possible', 'is not possible')}",
        lambda text: text.replace("possible", "maybe possible"),
        lambda text: text + " That is not true.",
    ],
)
def test_the_customer_must_be_told_truly_what_is_possible(change):
    for seed in range(0, 2000, 200):
        assert said(support(5, seed=seed), change) == 0


def test_the_first_rule_that_fits_counts():
    for seed in range(50):
        scene = Support(10, Random(seed))
        places = [place for place, rule in enumerate(scene._rules) if rule.fits(scene._facts, scene._days)]
        assert scene._action == scene._rules[places[0]].action


PIECES = (
    "ASK: ", "ANSWER: ", "OFFER: ", "ACCEPT: ", "ARGUE: ", "RESOLVE: ", "SAY: ", "\n", "city", "price", "=", ",", "100",
    "Y1", "refund", "order", "action", "is not possible", "please", "\ud800", "é\u0301", "\x00", "{}", "ſ", "İ", "٣",
)  # fmt: skip


@given(
    st.sampled_from(FAMILIES),
    st.integers(1, 10),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)).map(str), max_size=25),
)
async def test_whatever_is_said_gets_an_answer(family, level, pieces):
    environment, _ = await open_task(family, level, 0)
    text = "".join(pieces)
    for action in (text, f"SAY: {text}\n{environment.oracle().splitlines()[-1]}", text.replace(": ", ":\n")):
        step = check_step(await environment.step(action))
        if step.terminated:
            assert step.reward.success in (0.0, 1.0) or family == "negotiation"
            break


async def test_people_judge_the_whole_conversation_and_without_an_answer_it_has_failed(sqlite_url):
    async def play(timeout_s):
        environment = DialogueEnvironment(people(sqlite_url, timeout_s))
        task = environment.task("support", 4, 0)
        return await run_episode(environment, OraclePolicy(environment, None), Attempt(id="1", task=task, group="g"))

    masked = await play(0.3)
    assert (masked.end, masked.failure.boundary, masked.failure.kind) == (End.FAILED, "scorer", "ScorerError")
    trajectory, asked = await asyncio.gather(play(20.0), answer_queue(sqlite_url, "good"))
    assert trajectory.end is End.TERMINATED
    assert trajectory.reward.parts["coherence"] == pytest.approx(0.08 * 2 / 3)
    assert [message.content for message in asked.conversation if message.role == "assistant"] == [
        turn.action for turn in trajectory.turns
    ]
