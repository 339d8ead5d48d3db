"""Bias twins: a problem, and the same once more in a frame that tempts to another answer."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import floor, lcm, prod
from random import Random

from loomrl.envs.meta.question import NumberQuestion, Questions
from loomrl.gym.generate import between, words

Pair = tuple[NumberQuestion, NumberQuestion]
NEAREST = "whole number, rounded to the nearest"
NAMES = words("Anna Ben Cara Dan Eva Finn Gina Hugo")


def bias(level: int, rng: Random) -> Questions:
    """One of the biases, at low levels one of those that need few words."""
    return rng.choice(BIASES[: between(level, 3, len(BIASES) + 1)])(level, rng)


def anchor(level: int, rng: Random) -> Pair:
    """A number that has nothing to do with it is mentioned; the second time in cents, with another one."""
    count = between(level, 1, 6)
    rows = [(rng.randint(2, 4 + 9 * level), rng.randint(3, 9 * level**2)) for _ in range(count)]
    total = sum(number * price for number, price in rows)
    bought, again = (
        ", ".join(f"{number} at {price} euros" for number, price in rng.sample(rows, count)) for _ in range(2)
    )
    first, second = rng.sample((rng.randint(1, total // 2), rng.randint(2 * total, 9 * total)), 2)
    return (
        NumberQuestion(f"A friend guesses {first} euros. What is the price of {bought}, in euros?", total),
        NumberQuestion(f"A sign says {second * 100} cents. What is the price of {again}, in cents?", 100 * total),
    )


def sunk_cost(level: int, rng: Random) -> Pair:
    """Sunk costs are lost; the second time another sum on another plan, and the final amount is asked."""
    count = between(level, 2, 8)
    names = rng.sample("ABCDEFGH", count)
    plans = [(rng.randint(2, 9 + 9 * level), rng.randint(2, 9 + 9 * level)) for _ in names]
    costs = [cost for cost, _ in plans]
    told = ", ".join(f"{name} ({cost}, {cost + gain})" for name, (cost, gain) in zip(names, plans, strict=True))
    budget = rng.randint(min(costs), sum(costs) - 1)
    gained = _best_gain(plans, budget)
    rules = f"Plans, with what each still costs (paid at once) and later brings: {told}. {budget} coins are left."
    spent, other = (rng.randint(50 * level, 99 * level) for _ in range(2))
    return (
        NumberQuestion(
            f"You have spent {spent} coins on plan {names[0]}. {rules} How many can you gain at most?", gained
        ),
        NumberQuestion(
            f"{other} coins went into plan {names[-1]} and are gone. {rules} With how many can you end at most?",
            budget + gained,
        ),
    )


def _best_gain(plans: Sequence[tuple[int, int]], budget: int) -> int:
    chosen = (
        [plan for plan, take in zip(plans, takes, strict=True) if take] for takes in product((0, 1), repeat=len(plans))
    )
    return max(sum(gain for _, gain in some) for some in chosen if sum(cost for cost, _ in some) <= budget)


def framing(level: int, rng: Random) -> Pair:
    """Lives saved, or lives lost: programmes that save some for sure, and each of the others with some probability."""
    people = 100 * rng.randint(2, 5 * level + 4)
    programmes = [(rng.randrange(0, people - 20, 20), rng.randrange(5, 100, 5)) for _ in range(between(level, 1, 5))]
    saved = [sure + (people - sure) * percent // 100 for sure, percent in programmes]
    one = min(max(saved) + rng.randint(-people // 20, people // 20), people - 1)
    best = max(*saved, one)
    gains = [f"saves {sure} for sure and each other with probability {p}%" for sure, p in programmes]
    losses = [f"leaves {people - sure} in danger, who each die with probability {100 - p}%" for sure, p in programmes]
    gains.append(f"saves {one} for sure")
    losses.append(f"lets {people - one} die for sure")
    first, second = (
        " ".join(f"One programme {text}." for text in rng.sample(texts, len(texts))) for texts in (gains, losses)
    )
    return (
        NumberQuestion(f"{people} people are ill. {first} How many does the best one save on average?", best),
        NumberQuestion(f"{people} people are ill. {second} With the best one, how many die on average?", people - best),
    )


def conjunction(level: int, rng: Random) -> Pair:
    """Two things at once are never more probable than one of them, however well the story fits."""
    count = between(level, 2, 4)
    traits = rng.sample(words("baker painter singer climber smoker dancer"), count)
    shares = [rng.randrange(10, 100, 10 if level < 5 else 5) for _ in traits]
    people = 20**count * rng.randint(1, 1 + level)
    name = rng.choice(NAMES)
    left = [people]
    for share in shares:
        left.append(left[-1] * share // 100)
    rates = "".join(f", {share}% of these {trait}s too" for share, trait in zip(shares[1:], traits[1:], strict=True))
    counts = "".join(f", {number} of these {trait}s too" for number, trait in zip(left[2:], traits[1:], strict=True))
    every = " and ".join(f"{trait}s" for trait in traits)
    return (
        NumberQuestion(
            f"{name} is just like a {traits[-1]}. Of people like {name} {shares[0]}% are {traits[0]}s{rates}. "
            f"Of {people} of them, how many more are {traits[0]}s than are {every} at once?",
            left[1] - left[-1],
        ),
        NumberQuestion(
            f"All take {name} for a {traits[-1]}. Of {people} people like {name} {left[1]} are {traits[0]}s{counts}. "
            f"How many of the {people} are not {every} at once?",
            people - left[-1],
        ),
    )


def streak(level: int, rng: Random) -> Pair:
    """A wheel has no memory; the second time the opposite happened, and the opposite is asked."""
    wheels = []
    for _ in range(between(level, 1, 3)):
        fields = rng.randint(3, 8 + 2 * level)
        wheels.append((fields, rng.randint(1, fields - 1)))
    round_of_all = lcm(*(fields for fields, _ in wheels))
    gain, loss = (rng.randint(2, 9 * level), rng.randint(2, 9 * level)) if level > 4 else (1, 0)
    rules = "; ".join(f"a wheel has {fields} equal fields, {red} of them red" for fields, red in wheels)
    rules = f"{rules[0].upper()}{rules[1:]}." + (
        f" Red brings {gain} coins, other colours cost {loss}." if loss else ""
    )
    spins = round_of_all * rng.randint(2, 9)
    reds = [spins * red // fields for fields, red in wheels]
    worth = sum(red * gain - (spins - red) * loss for red in reds)
    asked = ("How many coins do you win (below 0: lose)", "How often does red come")[not loss]
    contrary = ("How many coins does the bank win (below 0: lose)", "How often does red not come")[not loss]
    end = f"on average in {spins} spins{' of each' if len(wheels) > 1 else ''}?"
    runs = [rng.randint(4, 12) for _ in range(2)]
    return (
        NumberQuestion(f"{rules} Red came in the last {runs[0]} spins. {asked} {end}", worth),
        NumberQuestion(
            f"{rules} Red did not come in the last {runs[1]} spins. {contrary} {end}",
            -worth if loss else len(wheels) * spins - worth,
        ),
    )


def base_rate(level: int, rng: Random) -> Pair:
    """The share of ill people among some test results: by counts, then by percentages with the opposite asked."""
    while True:
        ill = rng.randint(1, 25) * 20
        tests = [(rng.randint(11, 19), rng.randint(1, 9), rng.random() < 0.7) for _ in range(between(level, 1, 4))]
        weights = [
            prod((Fraction(test[kind] if test[2] else 20 - test[kind], 20) for test in tests), start=Fraction(count))
            for kind, count in ((0, ill), (1, 10_000 - ill))
        ]
        share = 100 * weights[0] / sum(weights)
        if share > 3 and abs(share - floor(share) - Fraction(1, 2)) > Fraction(1, 50):
            break
    named = [(f"Test {'ABCD'[place]}", *test) for place, test in enumerate(tests)]
    results = ", ".join(f"{name} {'positive' if positive else 'negative'}" for name, _, _, positive in named)
    counts = " ".join(
        f"{name} is positive for {hit} of 20 ill and {false} of 20 healthy people." for name, hit, false, _ in named
    )
    rates = " ".join(
        f"{name} finds {5 * hit}% of the ill, and is wrong about {5 * false}% of the healthy."
        for name, hit, false, _ in named
    )
    who = rng.choice(NAMES)
    apart = " Tests err independently." if len(tests) > 1 else ""
    return (
        NumberQuestion(
            f"Of 10000 people {ill} are ill. {counts}{apart} Of those with {results}, how many percent are ill?",
            round(share),
            NEAREST,
        ),
        NumberQuestion(
            f"{who} has {results}. {rates}{apart} {ill / 100:g}% of all people are ill. "
            f"How probable is it, in percent, that {who} is healthy?",
            100 - round(share),
            NEAREST,
        ),
    )


BIASES = (streak, anchor, sunk_cost, framing, conjunction, base_rate)
"""From few words to many."""
