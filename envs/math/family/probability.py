"""Probability: urns, expectation and variance, conditional probability."""

from fractions import Fraction
from math import comb, factorial
from random import Random

from loomrl.envs.math.family.counting import choose
from loomrl.envs.math.notation import bracketed, listing, number
from loomrl.envs.math.problem import Problem, fraction_problem, nonzero, phrase
from loomrl.gym.generate import between

_COLOURS = ("red", "blue", "green", "white", "black", "yellow")


def probability(level: int, rng: Random) -> Problem:
    """Balls from an urn: one, several with and without putting back, at least one."""
    kinds = 2 if level <= 2 else 3
    colours = rng.sample(_COLOURS, kinds)
    counts = [rng.randint(2, between(level, 12, 9)) for _ in colours]
    urn = listing([f"{n} {c}" for n, c in zip(counts, colours, strict=True)])
    box = rng.choice(("An urn", "A bag", "A box"))
    given = f"{box} holds {urn} balls."
    build = (_one_ball, _one_ball, _with_return, _without_return, _without_return, _same_colour, _same_colour)
    return (*build, _at_least_one, _exactly, _exactly)[level - 1](level, rng, given, colours, counts)


def _one_ball(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> Problem:
    whole = sum(counts)
    wanted = counts[0] if level == 1 else whole - counts[0]
    what = colours[0] if level == 1 else f"not {colours[0]}"
    prompt = phrase(
        rng,
        f"{given} One is drawn at random. What is the probability that it is {what}?",
        f"{given} Find the probability that a ball drawn at random is {what}.",
    )
    result = Fraction(wanted, whole)
    steps = [f"{' + '.join(map(str, counts))} = {whole}"]
    steps += [f"{whole} - {counts[0]} = {wanted}"] if level == 2 else []
    return fraction_problem(prompt, result, [*steps, f"{wanted} / {whole} = {number(result)}"])


def _with_return(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> Problem:
    whole, (a, b) = sum(counts), counts[:2]
    result = Fraction(a * b, whole * whole)
    prompt = (
        f"{given} One is drawn, put back, and again one is drawn. What is the probability of {colours[0]} "
        f"first and {colours[1]} second?"
    )
    steps = [f"{' + '.join(map(str, counts))} = {whole}", f"{a}/{whole} * {b}/{whole} = {number(result)}"]
    return fraction_problem(prompt, result, steps)


def _without_return(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> Problem:
    whole = sum(counts)
    draws = 2 if level == 4 else 3
    drawn = [rng.randrange(len(colours)) for _ in range(draws)]
    left = list(counts)
    result = Fraction(1)
    factors = []
    for turn, k in enumerate(drawn):
        factors.append(f"{left[k]}/{whole - turn}")
        result *= Fraction(left[k], whole - turn)
        left[k] -= 1
    if not result:
        return _without_return(level, rng, given, colours, counts)
    order = listing([colours[k] for k in drawn], "and finally")
    prompt = phrase(
        rng,
        f"{given} {draws} are drawn one after the other without putting them back. What is the probability of "
        f"drawing {order}, in this order?",
        f"{given} Without replacement, {draws} balls are drawn. Find the probability that they are, in order, {order}.",
    )
    steps = [f"{' + '.join(map(str, counts))} = {whole}", f"{' * '.join(factors)} = {number(result)}"]
    return fraction_problem(prompt, result, steps)


def _same_colour(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> Problem:
    whole = sum(counts)
    draws = 2 if level == 6 else 3
    ways = [comb(n, draws) for n in counts]
    result = Fraction(sum(ways), comb(whole, draws))
    if level == 7 and not result:
        return _same_colour(6, rng, given, colours, counts)
    prompt = phrase(
        rng,
        f"{given} {draws} are drawn at once. What is the probability that all of them have the same colour?",
        f"{given} Someone takes {draws} without looking. How likely is it that they share one colour?",
    )
    falling = " * ".join(str(whole - k) for k in range(draws))
    steps = [
        f"{' + '.join(map(str, counts))} = {whole}",
        f"Ways to draw: {falling} / {factorial(draws)} = {comb(whole, draws)}",
    ]
    steps += [
        f"All {c}: {' * '.join(str(n - k) for k in range(draws))} / {factorial(draws)} = {w}"
        for c, n, w in zip(colours, counts, ways, strict=True)
        if w
    ]
    steps += [f"{' + '.join(map(str, ways))} = {sum(ways)}", f"{sum(ways)} / {comb(whole, draws)} = {number(result)}"]
    return fraction_problem(prompt, result, steps)


def _at_least_one(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> Problem:
    whole = sum(counts)
    draws = rng.choice((2, 3))
    none = Fraction(comb(whole - counts[0], draws), comb(whole, draws))
    prompt = phrase(
        rng,
        f"{given} {draws} are drawn without putting them back. What is the probability that at least one is "
        f"{colours[0]}?",
        f"{given} Find the probability of at least one {colours[0]} ball among {draws} drawn at once.",
    )
    factors = " * ".join(f"{whole - counts[0] - k}/{whole - k}" for k in range(draws))
    steps = [
        f"{' + '.join(map(str, counts))} = {whole}",
        f"Not {colours[0]}: {whole} - {counts[0]} = {whole - counts[0]}",
        f"None is {colours[0]}: {factors} = {number(none)}",
        f"1 - {number(none)} = {number(1 - none)}",
    ]
    return fraction_problem(prompt, 1 - none, steps)


def _exactly(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> Problem:
    """Exactly k of one colour: at once, or at level 10 with putting back."""
    whole = sum(counts)
    draws = rng.randint(3, 4)
    hits = rng.randint(1, min(counts[0], draws - 1))
    a = counts[0]
    rest = whole - counts[0]
    start = [f"{' + '.join(map(str, counts))} = {whole}", f"{whole} - {a} = {rest}"]
    if level == 9:
        result = Fraction(comb(a, hits) * comb(rest, draws - hits), comb(whole, draws))
        prompt = (
            f"{given} {draws} are drawn at once. What is the probability that exactly {hits} of them "
            f"{'is' if hits == 1 else 'are'} "
            f"{colours[0]}?"
        )
        chosen = [choose(a, hits), choose(rest, draws - hits), choose(whole, draws)]
        steps = [
            *start,
            *chosen,
            f"{comb(a, hits)} * {comb(rest, draws - hits)} / {comb(whole, draws)} = {number(result)}",
        ]
        return fraction_problem(prompt, result, steps)
    ways = comb(draws, hits)
    result = ways * Fraction(a, whole) ** hits * Fraction(rest, whole) ** (draws - hits)
    prompt = (
        f"{given} {draws} times a ball is drawn and put back. What is the probability that exactly {hits} of "
        "the draws "
        f"{'is' if hits == 1 else 'are'} "
        f"{colours[0]}?"
    )
    powers = f"{ways} * ({a}/{whole})^{hits} * ({rest}/{whole})^{draws - hits}"
    return fraction_problem(prompt, result, [*start, f"{powers} = {number(result)}"])


def expectation(level: int, rng: Random) -> Problem:
    """Expected values of games, then of sums, then variances and missing probabilities."""
    outcomes = between(level, 2, 5)
    weights = [rng.randint(1, 9) for _ in range(outcomes)]
    whole = sum(weights)
    values = sorted(rng.sample(range(1 if level <= 3 else -20, 41), outcomes))
    chances = [Fraction(w, whole) for w in weights]
    expected = sum((v * p for v, p in zip(values, chances, strict=True)), Fraction(0))
    table = listing([f"{v} with probability {number(p)}" for v, p in zip(values, chances, strict=True)])
    terms = " + ".join(f"{bracketed(v)} * {number(p)}" for v, p in zip(values, chances, strict=True))
    steps = [f"{terms} = {number(expected)}"]
    if level <= 5:
        prompt = phrase(
            rng,
            f"A game pays {table}. What is the expected payment?",
            f"A random variable X takes the values {table}. Find its expected value.",
        )
        return fraction_problem(prompt, expected, steps)
    if level <= 7:
        times = rng.randint(2, 9)
        plus = nonzero(rng, 20)
        result = times * expected + plus
        sign = "+" if plus > 0 else "-"
        prompt = (
            f"A random variable X takes the values {table}. Find the expected value of {times}X {sign} {abs(plus)}."
        )
        return fraction_problem(
            prompt, result, [*steps, f"{times} * {bracketed(expected)} {sign} {abs(plus)} = {number(result)}"]
        )
    squares = sum((v * v * p for v, p in zip(values, chances, strict=True)), Fraction(0))
    result = squares - expected**2
    terms = " + ".join(f"{bracketed(v)}^2 * {number(p)}" for v, p in zip(values, chances, strict=True))
    steps += [f"{terms} = {number(squares)}", f"{number(squares)} - {bracketed(expected)}^2 = {number(result)}"]
    if level <= 9:
        prompt = phrase(
            rng,
            f"A random variable takes the values {table}. Find its variance.",
            f"A game pays {table}. What is the variance of the payment?",
        )
        return fraction_problem(prompt, result, steps)
    count = rng.randint(2, 12)
    prompt = f"{count} independent random variables each take the values {table}. What is the variance of their sum?"
    return fraction_problem(
        prompt, count * result, [*steps, f"{count} * {bracketed(result)} = {number(count * result)}"]
    )


def conditional(level: int, rng: Random) -> Problem:
    """Conditional probability: from counts, from rates, and back by Bayes."""
    if level <= 3:
        return _from_table(level, rng)
    return _from_rates(level, rng)


def _from_table(level: int, rng: Random) -> Problem:
    a, b, c, d = (rng.randint(3, 30 * level) for _ in range(4))
    groups, habit = rng.choice(
        ((("adults", "children"), "like tea"), (("cats", "dogs"), "are vaccinated"), (("trains", "buses"), "were late"))
    )
    given = f"Of {a + b} {groups[0]}, {a} {habit}; of {c + d} {groups[1]}, {c} {habit}."
    if level == 1:
        result = Fraction(a, a + c)
        steps = [f"{a} + {c} = {a + c}", f"{a} / {a + c} = {number(Fraction(a, a + c))}"]
        prompt = (
            f"{given} One of those that {habit} is picked at random. What is the probability that it is one of "
            f"the {groups[0]}?"
        )
    else:
        result = Fraction(b, b + d)
        steps = [
            f"{a + b} - {a} = {b}",
            f"{c + d} - {c} = {d}",
            f"{b} + {d} = {b + d}",
            f"{b} / {b + d} = {number(result)}",
        ]
        verb = habit.replace("are", "are not").replace("were", "were not").replace("like", "do not like")
        prompt = (
            f"{given} One of those that {verb} is picked at random. What is the probability that it is one of the "
            f"{groups[0]}?"
        )
    return fraction_problem(prompt, result, steps)


def _from_rates(level: int, rng: Random) -> Problem:
    """Machines with shares and fault rates; which one made a faulty part?"""
    count = 2 if level <= 6 else 3 if level <= 9 else 4
    step = 10 if level <= 5 else 5
    while True:
        shares = [step * rng.randint(1, 90 // step) for _ in range(count - 1)]
        if sum(shares) < 100:
            break
    shares.append(100 - sum(shares))
    rates = [rng.randint(1, 20) for _ in shares]
    if len(set(rates)) == 1:
        rates[0] += 1
    products = [s * r for s, r in zip(shares, rates, strict=True)]
    names = "ABCD"[:count]
    given = listing(
        [
            f"machine {m} makes {s}% of the parts, {r}% of them faulty"
            for m, s, r in zip(names, shares, rates, strict=True)
        ]
    )
    whole = sum(products)
    steps = [f"{s}/100 * {r}/100 = {p}/10000" for s, r, p in zip(shares, rates, products, strict=True)]
    steps.append(f"{' + '.join(f'{p}/10000' for p in products)} = {number(Fraction(whole, 10_000))}")
    if level == 4:
        prompt = f"In a factory {given}. What is the probability that a part taken at random is faulty?"
        return fraction_problem(prompt, Fraction(whole, 10_000), steps)
    good = level in (8, 9, 10)
    at = rng.randrange(count)
    if not good:
        result = Fraction(products[at], whole)
        prompt = (
            f"In a factory {given}. A part taken at random is faulty. What is the probability that machine "
            f"{names[at]} made it?"
        )
        return fraction_problem(prompt, result, [*steps, f"{products[at]} / {whole} = {number(result)}"])
    fine = [s * (100 - r) for s, r in zip(shares, rates, strict=True)]
    result = Fraction(fine[at], sum(fine))
    prompt = (
        f"In a factory {given}. A part taken at random is not faulty. What is the probability that machine "
        f"{names[at]} made it?"
    )
    steps = [f"{s} * (100 - {r}) = {p}" for s, r, p in zip(shares, rates, fine, strict=True)]
    steps += [f"{' + '.join(map(str, fine))} = {sum(fine)}", f"{fine[at]} / {sum(fine)} = {number(result)}"]
    return fraction_problem(prompt, result, steps)
