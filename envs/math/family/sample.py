"""Samples: means, medians and spread."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.notation import bracketed, listing, number, surd
from loomrl.envs.math.problem import Problem, fraction_problem, nonzero, phrase
from loomrl.gym.generate import between

_SAMPLES = ("A sensor reported the values", "Here are some measurements:", "A sample consists of the values")


def _sample(level: int, rng: Random) -> list[int]:
    return [rng.randint(1, between(level, 20, 90)) for _ in range(between(level, 4, 9))]


def _shown(values: list[int]) -> str:
    return ", ".join(map(str, values))


def mean(level: int, rng: Random) -> Problem:
    """The mean; a missing value; a weighted and a combined mean; a changed sample."""
    if level <= 3:
        return _plain_mean(level, rng)
    return (_missing_value if level <= 5 else _weighted_mean if level <= 7 else _changed_mean)(level, rng)


def _plain_mean(level: int, rng: Random) -> Problem:
    values = _sample(level, rng)
    if level == 3:
        values = [nonzero(rng, 40) for _ in range(6)]
    count = len(values)
    prompt = phrase(
        rng,
        f"Find the mean of the {count} numbers {_shown(values)}.",
        f"{rng.choice(_SAMPLES)} {_shown(values)}. What is the arithmetic mean of these {count} values?",
    )
    return fraction_problem(prompt, Fraction(sum(values), count), _mean_steps(values))


def _mean_steps(values: list[int]) -> list[str]:
    whole = sum(values)
    count = len(values)
    sums = " + ".join(map(bracketed, values))
    return [f"{sums} = {whole}", f"{bracketed(whole)} / {count} = {number(Fraction(whole, count))}"]


def _missing_value(level: int, rng: Random) -> Problem:
    values = _sample(level, rng)
    values[-1] += -sum(values) % len(values)
    count = len(values)
    average = sum(values) // len(values)
    known = values[:-1]
    rng.shuffle(known)
    prompt = phrase(
        rng,
        f"The mean of {count} numbers is {average}. All but one of them are {_shown(known)}. What is the "
        "missing number?",
        f"{count} numbers have the mean {average}; {count - 1} of them are {_shown(known)}. Find the other one.",
    )
    steps = [
        f"All together: {count} * {average} = {sum(values)}",
        f"Known: {' + '.join(map(str, known))} = {sum(known)}",
        f"{sum(values)} - {sum(known)} = {values[-1]}",
    ]
    return Problem(prompt, Answer(str(values[-1])), tuple(steps))


def _weighted_mean(level: int, rng: Random) -> Problem:
    counts = [rng.randint(2, 30) for _ in range(level - 4)]
    means = [rng.randint(40, 99) for _ in counts]
    products = [n * m for n, m in zip(counts, means, strict=True)]
    groups = listing([f"{n} students with mean {m}" for n, m in zip(counts, means, strict=True)])
    prompt = phrase(
        rng,
        f"The students of a school took a test in {len(counts)} groups: {groups}. What is the mean score of "
        "all students?",
        f"In a survey, {len(counts)} groups were asked: {groups} score. Find the mean score of all of them together.",
    )
    whole = sum(products)
    size = sum(counts)
    steps = [f"{n} * {m} = {n * m}" for n, m in zip(counts, means, strict=True)]
    steps += [f"{' + '.join(map(str, products))} = {whole}", f"{' + '.join(map(str, counts))} = {size}"]
    return fraction_problem(
        prompt, Fraction(whole, size), [*steps, f"{whole} / {size} = {number(Fraction(whole, size))}"]
    )


def _changed_mean(level: int, rng: Random) -> Problem:
    """Values join and leave a sample whose mean is known."""
    count = rng.randint(5, 30)
    average = rng.randint(20, 90)
    joined = [rng.randint(10, 99) for _ in range(level - 7)]
    left = [rng.randint(10, 99)] if level >= 9 else []
    whole = count * average + sum(joined) - sum(left)
    size = count + len(joined) - len(left)
    story = f"{listing([str(v) for v in joined])} {'is' if len(joined) == 1 else 'are'} added"
    story += f" and the value {left[0]} is removed" if left else ""
    prompt = phrase(
        rng,
        f"The mean of {count} values is {average}. Then {story}. What is the new mean?",
        f"A sample of {count} numbers has the mean {average}. Find its mean after {story}.",
    )
    changes = "".join(f" + {v}" for v in joined) + "".join(f" - {v}" for v in left)
    steps = [f"{count} * {average} = {count * average}", f"{count * average}{changes} = {whole}"]
    steps.append(f"{whole} / {size} = {number(Fraction(whole, size))}")
    return fraction_problem(prompt, Fraction(whole, size), steps)


def median(level: int, rng: Random) -> Problem:
    """The median, then with negative and tied values, the range, quartile distances, and from frequencies."""
    if level >= 8:
        return _frequency_median(level, rng)
    if level in (5, 7):
        return _median_after(level, rng)
    count = (4, 6, 8, 10, 0, 12)[level - 1]
    values = [nonzero(rng, between(level, 40, 120)) for _ in range(count)]
    values = [abs(value) for value in values] if level <= 2 else values
    prompt = phrase(
        rng,
        f"Find the median of {_shown(values)}.",
        f"{rng.choice(_SAMPLES)} {_shown(values)}. What is their median?",
    )
    return fraction_problem(prompt, _middle(values), _median_steps(values))


def _middle(values: list[int]) -> Fraction:
    ordered = sorted(values)
    half = len(ordered) // 2
    return Fraction(ordered[half]) if len(ordered) % 2 else Fraction(ordered[half - 1] + ordered[half], 2)


def _median_steps(values: list[int]) -> list[str]:
    ordered = sorted(values)
    half = len(values) // 2
    in_order = f"In order: {_shown(ordered)}"
    if len(values) % 2:
        return [in_order, f"The middle is {ordered[half]}"]
    a, b = ordered[half - 1 : half + 1]
    return [in_order, f"The two in the middle: ({a} + {bracketed(b)}) / 2 = {number(_middle(values))}"]


def _median_after(level: int, rng: Random) -> Problem:
    """The difference of mean and median."""
    values = [rng.randint(1, 20 * level) for _ in range(level)]
    while sum(values) % len(values):
        values[rng.randrange(len(values))] += 1
    average = sum(values) // len(values)
    middle = _middle(values)
    result = average - middle
    prompt = phrase(
        rng,
        f"By how much does the mean of the {len(values)} numbers {_shown(values)} exceed their median? (A "
        "negative number "
        "means that it is smaller.)",
        f"For the {len(values)} values {_shown(values)}, compute mean minus median.",
    )
    steps = [*_mean_steps(values), *_median_steps(values), f"{average} - {number(middle)} = {number(result)}"]
    return Problem(prompt, Answer(number(result)), tuple(steps))


def _frequency_median(level: int, rng: Random) -> Problem:
    """Median of values given with frequencies; at level 9 and 10 the interquartile range of a list."""
    if level == 8:
        values = sorted(rng.sample(range(1, 90), 5))
        counts = [rng.randint(1, 9) for _ in values]
        counts[0] += sum(counts) % 2
        sample = [v for v, n in zip(values, counts, strict=True) for _ in range(n)]
        table = listing([f"{v} ({n} times)" for v, n in zip(values, counts, strict=True)])
        prompt = phrase(
            rng,
            f"A sample holds the values {table}. What is its median?",
            f"Find the median of a sample with these frequencies: {table}.",
        )
        middle = _middle(sample)
        size = len(sample)
        ordered = sorted(sample)
        low, high = ordered[(size - 1) // 2], ordered[size // 2]
        steps = [
            f"Number of values: {' + '.join(map(str, counts))} = {size}",
            f"The middle: ({low} + {high}) / 2 = {number(middle)}",
        ]
        return fraction_problem(prompt, middle, steps)
    count = 8 if level == 9 else rng.choice((9, 11, 12, 13))
    values = [rng.randint(1, 150) for _ in range(count)]
    ordered = sorted(values)
    lower, upper = ordered[: count // 2], ordered[-(count // 2) :]
    q1 = _middle(lower)
    q3 = _middle(upper)
    prompt = phrase(
        rng,
        f"Find the interquartile range of {_shown(values)}.",
        f"{rng.choice(_SAMPLES)} {_shown(values)}. What is the interquartile range?",
    )
    prompt += " The quartiles are the medians of the lower and of the upper half"
    prompt += " (the median itself belongs to neither)." if count % 2 else "."
    steps = [f"In order: {_shown(ordered)}"]
    for part, quartile in ((lower, q1), (upper, q3)):
        if len(part) % 2 == 0:
            a, b = part[len(part) // 2 - 1 : len(part) // 2 + 1]
            steps.append(f"({a} + {b}) / 2 = {number(quartile)}")
    steps.append(f"{number(q3)} - {number(q1)} = {number(q3 - q1)}")
    return fraction_problem(prompt, q3 - q1, steps)


def variance(level: int, rng: Random) -> Problem:
    """Range, variance of a population and of a sample, standard deviation."""
    count = between(level, 3, 7)
    average = rng.randint(-20, 30) if level > 3 else rng.randint(5, 20)
    spread = between(level, 6, 15)
    values = [average + rng.randint(-spread, spread) for _ in range(count - 1)]
    values.append(count * average - sum(values))
    if len(set(values)) == 1 or abs(values[-1] - average) > 2 * spread:
        return variance(level, rng)
    rng.shuffle(values)
    squares = sum((v - average) ** 2 for v in values)
    sampled = level in (6, 7, 9)
    result = Fraction(squares, count - 1 if sampled else count)
    rooted = level >= 8
    kind = "sample" if sampled else "population"
    divisor = f"dividing by n - 1 with n = {count}" if sampled else f"dividing by n = {count}"
    what = f"{kind} {'standard deviation' if rooted else 'variance'} ({divisor})"
    prompt = phrase(
        rng,
        f"Find the {what} of {_shown(values)}.",
        f"{rng.choice(_SAMPLES)} {_shown(values)}. Compute the {what}.",
    )
    deviations = [f"({v} - {bracketed(average)})^2 = {(v - average) ** 2}" for v in values]
    sums = " + ".join(str((v - average) ** 2) for v in values)
    steps = [*_mean_steps(values), *deviations, f"{sums} = {squares}"]
    steps.append(f"{squares} / {count - 1 if sampled else count} = {number(result)}")
    if not rooted:
        return fraction_problem(prompt, result, steps)
    root = surd(Fraction(1, result.denominator), result.numerator * result.denominator)
    steps.append(f"√({number(result)}) = {root}")
    return Problem(f"{prompt} Give the exact value, with a root if needed.", Answer(root), tuple(steps))
