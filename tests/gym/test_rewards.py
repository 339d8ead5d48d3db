"""Further parts of the reward: what they add, what they never change, and how a failed part ends."""

import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.config import Experiment
from loomrl.config.rewards import RewardConfig
from loomrl.errors import ConfigError, ScorerError
from loomrl.gym.rewards import RewardComponent, Shaping, open_shaping
from loomrl.types import End, Failure, Reward, Task, Tokens, Trajectory, Turn


class Short(RewardComponent[Trajectory]):
    """A user's own."""

    def __init__(self, most=10):
        super().__init__(
            name="short", weight=0.5, compute_fn=lambda attempt: float(len(attempt.turns[-1].action) <= most)
        )


LOUD = RewardComponent[Trajectory]("loud", 2.0, lambda attempt: float(attempt.turns[-1].action.isupper()))


def attempt(*actions, success=1.0, seed=0, **changes):
    turns = [Turn((), action) for action in actions[:-1]] + [
        Turn((), actions[-1], Reward(success, {"own": success}, success))
    ]
    task = Task("Math", "1.0.0", "f", 1, seed)
    reward = Reward(success, {"own": success}, success)
    made = {"id": "a", "task": task, "turns": tuple(turns), "end": End.TERMINATED, "reward": reward}
    return Trajectory(**made, group="g", **changes)


def shape_one(shaping, one):
    (shaped,) = shaping.shape([one])
    return shaped


def open_parts(*parts, **settings):
    return open_shaping(RewardConfig.parse({"parts": parts, **settings}))


def test_parts_are_added_to_the_last_turn_and_to_the_sum_and_success_stays():
    shaping = open_parts(
        {"kind": "custom", "entry_point": f"{__name__}:Short"}, {"kind": "custom", "entry_point": f"{__name__}:LOUD"}
    )
    shaped = shape_one(shaping, attempt("first", "AB", success=0.5))
    assert shaped.reward == Reward(3.0, {"own": 0.5, "short": 0.5, "loud": 2.0}, 0.5)
    assert shaped.turns[-1].reward == shaped.reward
    assert shaped.turns[0].reward == Reward()
    assert sum(turn.reward.total for turn in shaped.turns) == shaped.reward.total


def by_turn(attempt):
    return [float(len(turn.action)) for turn in attempt.turns]


WORDY = RewardComponent[Trajectory]("wordy", 0.5, by_turn)


def test_a_part_may_score_every_turn():
    shaping = Shaping([WORDY, LOUD])
    shaped = shape_one(shaping, attempt("first", "", "AB", success=0.5))
    assert [turn.reward.parts.get("wordy") for turn in shaped.turns] == [2.5, 0.0, 1.0]
    assert [turn.reward.parts.get("loud") for turn in shaped.turns] == [None, None, 2.0]
    assert shaped.reward == Reward(6.0, {"own": 0.5, "wordy": 3.5, "loud": 2.0}, 0.5)
    assert sum(turn.reward.total for turn in shaped.turns) == shaped.reward.total


def test_a_part_of_turns_adapts_by_its_sum():
    quiet = RewardComponent[Trajectory]("quiet", 0.5, lambda _: 7.0)
    shaping = Shaping([WORDY, quiet], adaptation=0.5)
    shaping.observe([attempt("four", "two", "")])  # 7 in all
    assert shaping.weights == pytest.approx({"wordy": 0.5, "quiet": 0.5})


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([1.0], "answered with 1 numbers for 2 turns: return one for every turn"),
        ([1.0, math.nan], r"answered \(1.0, nan\): a finite number is needed"),
        ("much", "raised ValueError"),
        (None, "raised TypeError"),
    ],
)
def test_scores_of_turns_that_do_not_fit_fail_the_attempt(told, words):
    shaped = shape_one(Shaping([RewardComponent[Trajectory]("odd", 1.0, lambda _: told)]), attempt("a", "b"))
    assert shaped.end is End.FAILED
    assert re.search(words, shaped.failure.message), shaped.failure.message


def test_what_was_served_is_scored_by_one_number():
    with pytest.raises(ScorerError, match="'wordy' answered with 2 numbers: one is needed here"):
        WORDY.score(attempt("a", "b"))


def test_weights_and_settings_of_an_experiment_go_before_the_components_own():
    part = {"kind": "custom", "entry_point": f"{__name__}:Short", "weight": 3.0, "settings": {"most": 1}}
    assert shape_one(open_parts(part), attempt("A")).reward.parts["short"] == 3.0
    assert shape_one(open_parts(part), attempt("AB")).reward.parts["short"] == 0.0


def test_efficient_solutions_earn_more_and_misses_nothing():
    shaping = open_parts({"kind": "efficiency", "weight": 1.0})
    told = [shape_one(shaping, attempt("word " * words, success=s)).reward.parts["efficiency"]
            for words, s in ((0, 1), (100, 1), (300, 1), (0, 0))]  # fmt: skip
    assert told == [1.0, 0.5, 0.25, 0.0]


def test_what_was_trained_on_is_no_longer_new_and_only_then():
    shaping = open_parts({"kind": "novelty", "weight": 1.0})
    first, other = attempt("one"), attempt("one", seed=1)

    def worth(one):
        return shape_one(shaping, one).reward.parts["novelty"]

    assert [worth(first), worth(first)] == [1.0, 1.0]
    shaping.observe([first])
    assert worth(attempt(" one ")) == pytest.approx(1 / math.sqrt(2))
    assert worth(other) == 1.0


@given(st.lists(st.sampled_from(["A", "ab", "a b c", "ABCDEFGHIJKLM"]), min_size=1, max_size=12), st.floats(0, 3))
def test_a_run_resumed_from_its_state_goes_on_as_one_that_never_stopped(said, adaptation):
    parts = [
        {"kind": "novelty"},
        {"kind": "efficiency", "weight": 0.3},
        {"kind": "custom", "entry_point": f"{__name__}:LOUD"},
    ]
    whole, resumed = open_parts(*parts, adaptation=adaptation), open_parts(*parts, adaptation=adaptation)
    for text in said:
        whole.observe([attempt(text)])
        resumed.observe([attempt(text)])
        state = json.loads(json.dumps(resumed.state_dict()))
        resumed = open_parts(*parts, adaptation=adaptation)
        resumed.load_state_dict(state)
        assert shape_one(resumed, attempt(text)) == shape_one(whole, attempt(text))
        assert math.isclose(sum(whole.weights.values()), 2.4)


def test_weight_moves_to_the_part_that_is_behind_and_without_adaptation_it_stays():
    parts = [{"kind": "custom", "entry_point": f"{__name__}:Short", "weight": 1.0},
             {"kind": "custom", "entry_point": f"{__name__}:LOUD", "weight": 1.0}]  # fmt: skip
    moving, still = open_parts(*parts, adaptation=1.0), open_parts(*parts)
    for shaping in (moving, still):
        shaping.observe([attempt("quiet")])
    assert moving.weights["loud"] > 1.2 > 0.8 > moving.weights["short"]
    assert still.weights == {"short": 1.0, "loud": 1.0}


@pytest.mark.parametrize("answer", [math.nan, math.inf, "much"])
def test_a_part_that_gives_no_number_fails_the_attempt(answer):
    shaped = shape_one(Shaping([RewardComponent("bad", 1.0, lambda _: answer)]), attempt("A"))
    assert (shaped.end, shaped.reward) == (End.FAILED, Reward())
    assert "reward component 'bad'" in shaped.failure.message


def test_failed_attempts_are_left_alone():
    failed = replace(attempt("A"), end=End.FAILED, failure=Failure("x", "y", "z"))
    assert shape_one(open_parts({"kind": "efficiency"}), failed) is failed


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="each name once"):
        open_parts({"kind": "novelty"}, {"kind": "novelty"})
    with pytest.raises(ConfigError, match=r"is str. Derive it from loomrl.rewards.RewardComponent"):
        open_parts({"kind": "custom", "entry_point": "loomrl:__version__"})
    with pytest.raises(ConfigError, match="'own' is a part of Math's own"):
        shape_one(Shaping([RewardComponent("own", 1.0, lambda _: 1.0)]), attempt("A"))
    with pytest.raises(ConfigError, match="must be finite, and positive"):
        open_parts({"kind": "novelty", "weight": -1.0}, adaptation=1.0)
    with pytest.raises(ConfigError, match="Did you mean 'novelty'"):
        Experiment.parse({"name": "x", "rewards": {"parts": [{"kind": "novelti"}]}})
    with pytest.raises(ConfigError, match="does not fit"):
        open_parts({"kind": "novelty"}).load_state_dict({"weights": {"other": 1.0}, "novelty": []})


def test_a_constraint_costs_the_share_of_turns_that_break_a_rule():
    shaping = open_parts({"kind": "rules", "rules": [{"kind": "blocked", "words": ["darn"]}], "weight": 2.0})
    bad, good = (shape_one(shaping, attempt(text)) for text in ("Darn it!", "darning"))
    assert (bad.reward.parts["rules"], good.reward.parts["rules"]) == (-2.0, 0.0)
    assert bad.reward.total == attempt("Darn it!").reward.total - 2.0


def test_brevity_counts_tokens_or_words_and_asks_for_no_success():
    brief = open_parts({"kind": "brevity", "tokens": 4})
    assert shape_one(brief, attempt("one two", "three", success=0.0)).reward.parts["brevity"] == 0.25
    assert shape_one(brief, attempt("one two three four five")).reward.parts["brevity"] == 0
    one = attempt("one two three")
    tokens = Tokens.of([1, 2, 3], [False, True, False], [0, -1, 0], [-1, 0, -1])
    told = replace(one, turns=(replace(one.turns[0], tokens=tokens),))
    assert shape_one(brief, told).reward.parts["brevity"] == 0.75


def test_courtesy_is_the_share_of_polite_turns_in_few_tokens():
    def paid(*actions, success=0.0, **settings):
        part = {"kind": "courtesy", "tokens": 10, **settings}
        return shape_one(open_parts(part), attempt(*actions, success=success)).reward.parts["courtesy"]

    assert paid("Thank you.\nASK: day", "ANSWER: day=Monday") == pytest.approx(0.5 * 0.4)
    assert paid("THANK  you, Ann!") == paid("please, come in") == pytest.approx(0.7)
    assert paid("pleased, thank your mother") == 0
    assert paid("Bitte, ja", phrases=["bitte"]) == 0.8
    assert paid("please " * 10) == 0
    assert paid("please " * 5, power=2, weight=3.0) == 2.25
    assert paid("please", success=1.0) == paid("please")


def test_a_phrase_without_a_word_is_refused():
    with pytest.raises(ConfigError, match="phrases"):
        open_parts({"kind": "courtesy", "tokens": 10, "phrases": ["..."]})
