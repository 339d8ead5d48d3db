"""Statistics: samples, counting, probability."""

from fractions import Fraction
from math import comb, factorial
from random import Random

from loomrl.envs.math.answer import MathAnswer
from loomrl.envs.math.notation import bracket, number, surd
from loomrl.envs.math.problem import MathProblem, nonzero, phrase, pose, pose_fraction
from loomrl.gym.generate import between, listed, words

_SAMPLES = ("A sensor reported the values", "Here are some measurements:", "A sample consists of the values")


def _sample(level: int, rng: Random) -> list[int]:
    return [rng.randint(1, between(level, 20, 90)) for _ in range(between(level, 4, 9))]


def _list_values(values: list[int]) -> str:
    return ", ".join(map(str, values))


def mean(level: int, rng: Random) -> MathProblem:
    """The mean; a missing value; a weighted and a combined mean; a changed sample."""
    if level <= 3:
        return _plain_mean(level, rng)
    return (_missing_value if level <= 5 else _mean_of_groups if level <= 7 else _mean_after_changes)(level, rng)


def _plain_mean(level: int, rng: Random) -> MathProblem:
    values = _sample(level, rng)
    if level == 3:
        values = [nonzero(rng, 40) for _ in range(6)]
    count = len(values)
    return pose_fraction(
        rng,
        Fraction(sum(values), count),
        _mean_steps(values),
        f"Find the mean of the {count} numbers {_list_values(values)}.",
        f"{rng.choice(_SAMPLES)} {_list_values(values)}. What is the arithmetic mean of these {count} values?",
    )


def _mean_steps(values: list[int]) -> list[str]:
    whole = sum(values)
    count = len(values)
    sums = " + ".join(map(bracket, values))
    return [f"{sums} = {whole}", f"{bracket(whole)} / {count} = {number(Fraction(whole, count))}"]


def _missing_value(level: int, rng: Random) -> MathProblem:
    values = _sample(level, rng)
    values[-1] += -sum(values) % len(values)
    count = len(values)
    average = sum(values) // len(values)
    known = values[:-1]
    rng.shuffle(known)
    steps = [
        f"All together: {count} * {average} = {sum(values)}",
        f"Known: {' + '.join(map(str, known))} = {sum(known)}",
        f"{sum(values)} - {sum(known)} = {values[-1]}",
    ]
    return pose(
        rng,
        values[-1],
        steps,
        f"The mean of {count} numbers is {average}. All but one of them are {_list_values(known)}. What is the "
        "missing number?",
        f"{count} numbers have the mean {average}; {count - 1} of them are {_list_values(known)}. Find the other one.",
    )


def _mean_of_groups(level: int, rng: Random) -> MathProblem:
    counts = [rng.randint(2, 30) for _ in range(level - 4)]
    means = [rng.randint(40, 99) for _ in counts]
    products = [n * m for n, m in zip(counts, means, strict=True)]
    groups = listed([f"{n} students with mean {m}" for n, m in zip(counts, means, strict=True)])
    whole = sum(products)
    size = sum(counts)
    steps = [f"{n} * {m} = {n * m}" for n, m in zip(counts, means, strict=True)]
    steps += [f"{' + '.join(map(str, products))} = {whole}", f"{' + '.join(map(str, counts))} = {size}"]
    return pose_fraction(
        rng,
        Fraction(whole, size),
        [*steps, f"{whole} / {size} = {number(Fraction(whole, size))}"],
        f"The students of a school took a test in {len(counts)} groups: {groups}. What is the mean score of "
        "all students?",
        f"In a survey, {len(counts)} groups were asked: {groups} score. Find the mean score of all of them together.",
    )


def _mean_after_changes(level: int, rng: Random) -> MathProblem:
    """Values join and leave a sample whose mean is known."""
    count = rng.randint(5, 30)
    average = rng.randint(20, 90)
    joined = [rng.randint(10, 99) for _ in range(level - 7)]
    left = [rng.randint(10, 99)] if level >= 9 else []
    whole = count * average + sum(joined) - sum(left)
    size = count + len(joined) - len(left)
    story = f"{listed([str(v) for v in joined])} {'is' if len(joined) == 1 else 'are'} added"
    story += f" and the value {left[0]} is removed" if left else ""
    changes = "".join(f" + {v}" for v in joined) + "".join(f" - {v}" for v in left)
    steps = [f"{count} * {average} = {count * average}", f"{count * average}{changes} = {whole}"]
    steps.append(f"{whole} / {size} = {number(Fraction(whole, size))}")
    return pose_fraction(
        rng,
        Fraction(whole, size),
        steps,
        f"The mean of {count} values is {average}. Then {story}. What is the new mean?",
        f"A sample of {count} numbers has the mean {average}. Find its mean after {story}.",
    )


def median(level: int, rng: Random) -> MathProblem:
    """The median, then with negative and tied values, the range, quartile distances, and from frequencies."""
    if level >= 8:
        return _frequency_median(level, rng)
    if level in (5, 7):
        return _median_after(level, rng)
    count = (4, 6, 8, 10, 0, 12)[level - 1]
    values = [nonzero(rng, between(level, 40, 120)) for _ in range(count)]
    values = [abs(value) for value in values] if level <= 2 else values
    return pose_fraction(
        rng,
        _middle(values),
        _median_steps(values),
        f"Find the median of {_list_values(values)}.",
        f"{rng.choice(_SAMPLES)} {_list_values(values)}. What is their median?",
    )


def _middle(values: list[int]) -> Fraction:
    ordered = sorted(values)
    half = len(ordered) // 2
    return Fraction(ordered[half]) if len(ordered) % 2 else Fraction(ordered[half - 1] + ordered[half], 2)


def _median_steps(values: list[int]) -> list[str]:
    ordered = sorted(values)
    half = len(values) // 2
    in_order = f"In order: {_list_values(ordered)}"
    if len(values) % 2:
        return [in_order, f"The middle is {ordered[half]}"]
    a, b = ordered[half - 1 : half + 1]
    return [in_order, f"The two in the middle: ({a} + {bracket(b)}) / 2 = {number(_middle(values))}"]


def _median_after(level: int, rng: Random) -> MathProblem:
    """The difference of mean and median."""
    values = [rng.randint(1, 20 * level) for _ in range(level)]
    while sum(values) % len(values):
        values[rng.randrange(len(values))] += 1
    average = sum(values) // len(values)
    middle = _middle(values)
    result = average - middle
    steps = [*_mean_steps(values), *_median_steps(values), f"{average} - {number(middle)} = {number(result)}"]
    return pose(
        rng,
        result,
        steps,
        f"By how much does the mean of the {len(values)} numbers {_list_values(values)} exceed their median? (A "
        "negative number "
        "means that it is smaller.)",
        f"For the {len(values)} values {_list_values(values)}, compute mean minus median.",
    )


def _frequency_median(level: int, rng: Random) -> MathProblem:
    """Median of values given with frequencies; at level 9 and 10 the interquartile range of a list."""
    if level == 8:
        values = sorted(rng.sample(range(1, 90), 5))
        counts = [rng.randint(1, 9) for _ in values]
        counts[0] += sum(counts) % 2
        sample = [v for v, n in zip(values, counts, strict=True) for _ in range(n)]
        table = listed([f"{v} ({n} times)" for v, n in zip(values, counts, strict=True)])
        middle = _middle(sample)
        size = len(sample)
        ordered = sorted(sample)
        low, high = ordered[(size - 1) // 2], ordered[size // 2]
        steps = [
            f"Number of values: {' + '.join(map(str, counts))} = {size}",
            f"The middle: ({low} + {high}) / 2 = {number(middle)}",
        ]
        return pose_fraction(
            rng,
            middle,
            steps,
            f"A sample holds the values {table}. What is its median?",
            f"Find the median of a sample with these frequencies: {table}.",
        )
    count = 8 if level == 9 else rng.choice((9, 11, 12, 13))
    values = [rng.randint(1, 150) for _ in range(count)]
    ordered = sorted(values)
    lower, upper = ordered[: count // 2], ordered[-(count // 2) :]
    q1 = _middle(lower)
    q3 = _middle(upper)
    prompt = phrase(
        rng,
        f"Find the interquartile range of {_list_values(values)}.",
        f"{rng.choice(_SAMPLES)} {_list_values(values)}. What is the interquartile range?",
    )
    prompt += " The quartiles are the medians of the lower and of the upper half"
    prompt += " (the median itself belongs to neither)." if count % 2 else "."
    steps = [f"In order: {_list_values(ordered)}"]
    for part, quartile in ((lower, q1), (upper, q3)):
        if len(part) % 2 == 0:
            a, b = part[len(part) // 2 - 1 : len(part) // 2 + 1]
            steps.append(f"({a} + {b}) / 2 = {number(quartile)}")
    steps.append(f"{number(q3)} - {number(q1)} = {number(q3 - q1)}")
    return pose_fraction(rng, q3 - q1, steps, prompt)


def variance(level: int, rng: Random) -> MathProblem:
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
        f"Find the {what} of {_list_values(values)}.",
        f"{rng.choice(_SAMPLES)} {_list_values(values)}. Compute the {what}.",
    )
    deviations = [f"({v} - {bracket(average)})^2 = {(v - average) ** 2}" for v in values]
    sums = " + ".join(str((v - average) ** 2) for v in values)
    steps = [*_mean_steps(values), *deviations, f"{sums} = {squares}"]
    steps.append(f"{squares} / {count - 1 if sampled else count} = {number(result)}")
    if not rooted:
        return pose_fraction(rng, result, steps, prompt)
    root = surd(Fraction(1, result.denominator), result.numerator * result.denominator)
    steps.append(f"√({number(result)}) = {root}")
    return MathProblem(f"{prompt} Give the exact value, with a root if needed.", MathAnswer(root), tuple(steps))


def counting(level: int, rng: Random) -> MathProblem:
    """Choices, arrangements, committees, words with repeated letters, paths."""
    build = (
        _menu,
        _menu,
        _arrangements,
        _arrangements,
        _committee,
        _committee,
        _two_groups,
        _two_groups,
        _word,
        _paths,
    )
    prompt, result, steps = build[level - 1](level, rng)
    return MathProblem(prompt, MathAnswer(str(result)), tuple(steps))


Counted = tuple[str, int, list[str]]


def _menu(level: int, rng: Random) -> Counted:
    sizes = [rng.randint(2, 15) for _ in range(level + 2)]
    running = sizes[0]
    steps = []
    for size in sizes[1:]:
        steps.append(f"{running} * {size} = {running * size}")
        running *= size
    nouns = rng.sample(("starters", "main courses", "desserts", "drinks", "soups"), len(sizes))
    choices = listed([f"{n} {noun}" for n, noun in zip(sizes, nouns, strict=True)])
    return (
        phrase(
            rng,
            f"A menu offers {choices}. How many different meals with one of each are there?",
            f"There are {choices} to choose from. In how many ways can one of each kind be picked?",
        ),
        running,
        steps,
    )


def _arrangements(level: int, rng: Random) -> Counted:
    n = rng.randint(5, 60)
    k = rng.randint(2, 4 if n > 12 else 5)
    falling = [n - i for i in range(k)]
    result = factorial(n) // factorial(n - k)
    prompt = phrase(
        rng,
        f"{n} runners compete. In how many ways can the first {k} places be taken?",
        f"How many ways are there to put {k} of {n} different books in a row on a shelf?",
        f"A club of {n} members elects {k} people for {k} different offices. How many outcomes are possible?",
    )
    if level == 4:
        fixed = rng.randint(2, 5)
        prompt = (
            f"A code consists of {k} different symbols out of {n}, followed by one of {fixed} colours. How many "
            "codes are there?"
        )
        return (
            prompt,
            result * fixed,
            [f"{' * '.join(map(str, falling))} = {result}", f"{result} * {fixed} = {result * fixed}"],
        )
    return prompt, result, [f"{' * '.join(map(str, falling))} = {result}"]


def choose(n: int, k: int) -> str:
    """`5 * 4 / 2 = 10`: the ways to choose k of n."""
    return f"{' * '.join(str(n - i) for i in range(k))} / {factorial(k)} = {comb(n, k)}"


def _committee(level: int, rng: Random) -> Counted:
    n = rng.randint(6, 70)
    k = rng.randint(2, 5)
    if level == 5:
        return (
            phrase(
                rng,
                f"In how many ways can a committee of {k} be chosen from {n} people?",
                f"How many different sets of {k} cards can be taken from {n} different cards?",
                f"There are {n} teams. In how many ways can {k} of them be selected?",
            ),
            comb(n, k),
            [choose(n, k)],
        )
    without = comb(n - 2, k)
    steps = [
        choose(n, k),
        f"Without these two: {n} - 2 = {n - 2}",
        choose(n - 2, k),
        f"{comb(n, k)} - {without} = {comb(n, k) - without}",
    ]
    return (
        phrase(
            rng,
            f"From {n} people, {k} are chosen. Two of the people are twins. In how many of the possible choices "
            "is at least one twin chosen?",
            f"A team of {k} is formed from {n} players, two of whom are brothers. How many teams include at least "
            "one of the brothers?",
            f"{n} cards hold two aces. How many sets of {k} of these cards contain at least one ace?",
        ),
        comb(n, k) - without,
        steps,
    )


def _two_groups(level: int, rng: Random) -> Counted:
    a = rng.randint(4, 25)
    b = rng.randint(4, 25)
    i = rng.randint(2, 3)
    j = rng.randint(2, 3)
    first = [choose(a, i), choose(b, j)]
    x, y = comb(a, i), comb(b, j)
    if level == 7:
        return (
            phrase(
                rng,
                f"A team of {i} women and {j} men is chosen from {a} women and {b} men. How many teams are possible?",
                f"From {a} novels and {b} comics, someone takes {i} novels and {j} comics. In how many ways?",
            ),
            x * y,
            [*first, f"{x} * {y} = {x * y}"],
        )
    k = rng.randint(3, 4)
    whole = comb(a + b, k)
    none = comb(b, k)
    other = comb(a, k)
    prompt = (
        f"A committee of {k} is chosen from {a} women and {b} men. How many committees have at least one "
        "woman and at least one man?"
    )
    steps = [
        f"{a} + {b} = {a + b}",
        choose(a + b, k),
        choose(a, k),
        choose(b, k),
        f"{whole} - {none} - {other} = {whole - none - other}",
    ]
    return prompt, whole - none - other, steps


def _word(level: int, rng: Random) -> Counted:
    letters = rng.sample("ABCDEFGHIKLMNOPRSTU", rng.randint(3, 5))
    counts = [rng.randint(1, 4) for _ in letters]
    counts[0] = max(2, counts[0])
    word = [x for x, n in zip(letters, counts, strict=True) for _ in range(n)]
    rng.shuffle(word)
    size = len(word)
    result = factorial(size)
    divisor = 1
    for n in counts:
        divisor *= factorial(n)
    result //= divisor
    product = " * ".join(str(k) for k in range(size, 1, -1))
    repeated = " * ".join(str(factorial(n)) for n in counts if n > 1)
    return (
        phrase(
            rng,
            f"In how many different orders can the {size} letters {' '.join(word)} be written?",
            f"How many different strings can be made by rearranging all {size} letters of {''.join(word)}?",
        ),
        result,
        [f"{product} = {factorial(size)}", f"{factorial(size)} / ({repeated}) = {result}"],
    )


def _paths(level: int, rng: Random) -> Counted:
    """Lattice paths through a given point."""
    a = rng.randint(2, 6)
    b = rng.randint(2, 6)
    c = rng.randint(2, 6)
    d = rng.randint(2, 6)
    x, y = comb(a + b, b), comb(c + d, d)
    steps = [
        f"{a} + {b} = {a + b} steps lead to ({a}, {b}): {choose(a + b, b)}",
        f"From there ({a + c} - {a}) + ({b + d} - {b}) = {c + d} steps: {choose(c + d, d)}",
        f"{x} * {y} = {x * y}",
    ]
    return (
        phrase(
            rng,
            f"A robot moves on a grid, only one step right or one step up at a time, from (0, 0) to ({a + c}, "
            f"{b + d}). How many of its "
            f"paths pass through ({a}, {b})?",
            f"How many shortest grid paths lead from (0, 0) over ({a}, {b}) to ({a + c}, {b + d})?",
        ),
        x * y,
        steps,
    )


_COLOURS = words("red blue green white black yellow")


def probability(level: int, rng: Random) -> MathProblem:
    """Balls from an urn: one, several with and without putting back, at least one."""
    kinds = 2 if level <= 2 else 3
    colours = rng.sample(_COLOURS, kinds)
    counts = [rng.randint(2, between(level, 12, 9)) for _ in colours]
    urn = listed([f"{n} {c}" for n, c in zip(counts, colours, strict=True)])
    box = rng.choice(("An urn", "A bag", "A box"))
    given = f"{box} holds {urn} balls."
    build = (_one_ball, _one_ball, _with_return, _without_return, _without_return, _same_colour, _same_colour)
    return (*build, _at_least_one, _exactly, _exactly)[level - 1](level, rng, given, colours, counts)


def _one_ball(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> MathProblem:
    whole = sum(counts)
    wanted = counts[0] if level == 1 else whole - counts[0]
    what = colours[0] if level == 1 else f"not {colours[0]}"
    result = Fraction(wanted, whole)
    steps = [f"{' + '.join(map(str, counts))} = {whole}"]
    steps += [f"{whole} - {counts[0]} = {wanted}"] if level == 2 else []
    return pose_fraction(
        rng,
        result,
        [*steps, f"{wanted} / {whole} = {number(result)}"],
        f"{given} One is drawn at random. What is the probability that it is {what}?",
        f"{given} Find the probability that a ball drawn at random is {what}.",
    )


def _with_return(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> MathProblem:
    whole, (a, b) = sum(counts), counts[:2]
    result = Fraction(a * b, whole * whole)
    prompt = (
        f"{given} One is drawn, put back, and again one is drawn. What is the probability of {colours[0]} "
        f"first and {colours[1]} second?"
    )
    steps = [f"{' + '.join(map(str, counts))} = {whole}", f"{a}/{whole} * {b}/{whole} = {number(result)}"]
    return pose_fraction(rng, result, steps, prompt)


def _without_return(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> MathProblem:
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
    order = listed([colours[k] for k in drawn], "and finally")
    steps = [f"{' + '.join(map(str, counts))} = {whole}", f"{' * '.join(factors)} = {number(result)}"]
    return pose_fraction(
        rng,
        result,
        steps,
        f"{given} {draws} are drawn one after the other without putting them back. What is the probability of "
        f"drawing {order}, in this order?",
        f"{given} Without replacement, {draws} balls are drawn. Find the probability that they are, in order, {order}.",
    )


def _same_colour(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> MathProblem:
    whole = sum(counts)
    draws = 2 if level == 6 else 3
    ways = [comb(n, draws) for n in counts]
    result = Fraction(sum(ways), comb(whole, draws))
    if level == 7 and not result:
        return _same_colour(6, rng, given, colours, counts)
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
    return pose_fraction(
        rng,
        result,
        steps,
        f"{given} {draws} are drawn at once. What is the probability that all of them have the same colour?",
        f"{given} Someone takes {draws} without looking. How likely is it that they share one colour?",
    )


def _at_least_one(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> MathProblem:
    whole = sum(counts)
    draws = rng.choice((2, 3))
    none = Fraction(comb(whole - counts[0], draws), comb(whole, draws))
    factors = " * ".join(f"{whole - counts[0] - k}/{whole - k}" for k in range(draws))
    steps = [
        f"{' + '.join(map(str, counts))} = {whole}",
        f"Not {colours[0]}: {whole} - {counts[0]} = {whole - counts[0]}",
        f"None is {colours[0]}: {factors} = {number(none)}",
        f"1 - {number(none)} = {number(1 - none)}",
    ]
    return pose_fraction(
        rng,
        1 - none,
        steps,
        f"{given} {draws} are drawn without putting them back. What is the probability that at least one is "
        f"{colours[0]}?",
        f"{given} Find the probability of at least one {colours[0]} ball among {draws} drawn at once.",
    )


def _exactly(level: int, rng: Random, given: str, colours: list[str], counts: list[int]) -> MathProblem:
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
        return pose_fraction(rng, result, steps, prompt)
    ways = comb(draws, hits)
    result = ways * Fraction(a, whole) ** hits * Fraction(rest, whole) ** (draws - hits)
    prompt = (
        f"{given} {draws} times a ball is drawn and put back. What is the probability that exactly {hits} of "
        "the draws "
        f"{'is' if hits == 1 else 'are'} "
        f"{colours[0]}?"
    )
    powers = f"{ways} * ({a}/{whole})^{hits} * ({rest}/{whole})^{draws - hits}"
    return pose_fraction(rng, result, [*start, f"{powers} = {number(result)}"], prompt)


def expectation(level: int, rng: Random) -> MathProblem:
    """Expected values of games, then of sums, then variances and missing probabilities."""
    outcomes = between(level, 2, 5)
    weights = [rng.randint(1, 9) for _ in range(outcomes)]
    whole = sum(weights)
    values = sorted(rng.sample(range(1 if level <= 3 else -20, 41), outcomes))
    chances = [Fraction(w, whole) for w in weights]
    expected = sum((v * p for v, p in zip(values, chances, strict=True)), Fraction(0))
    table = listed([f"{v} with probability {number(p)}" for v, p in zip(values, chances, strict=True)])
    terms = " + ".join(f"{bracket(v)} * {number(p)}" for v, p in zip(values, chances, strict=True))
    steps = [f"{terms} = {number(expected)}"]
    if level <= 5:
        return pose_fraction(
            rng,
            expected,
            steps,
            f"A game pays {table}. What is the expected payment?",
            f"A random variable X takes the values {table}. Find its expected value.",
        )
    if level <= 7:
        times = rng.randint(2, 9)
        plus = nonzero(rng, 20)
        result = times * expected + plus
        sign = "+" if plus > 0 else "-"
        prompt = (
            f"A random variable X takes the values {table}. Find the expected value of {times}X {sign} {abs(plus)}."
        )
        return pose_fraction(
            rng, result, [*steps, f"{times} * {bracket(expected)} {sign} {abs(plus)} = {number(result)}"], prompt
        )
    squares = sum((v * v * p for v, p in zip(values, chances, strict=True)), Fraction(0))
    result = squares - expected**2
    terms = " + ".join(f"{bracket(v)}^2 * {number(p)}" for v, p in zip(values, chances, strict=True))
    steps += [f"{terms} = {number(squares)}", f"{number(squares)} - {bracket(expected)}^2 = {number(result)}"]
    if level <= 9:
        return pose_fraction(
            rng,
            result,
            steps,
            f"A random variable takes the values {table}. Find its variance.",
            f"A game pays {table}. What is the variance of the payment?",
        )
    count = rng.randint(2, 12)
    prompt = f"{count} independent random variables each take the values {table}. What is the variance of their sum?"
    return pose_fraction(
        rng, count * result, [*steps, f"{count} * {bracket(result)} = {number(count * result)}"], prompt
    )


def conditional(level: int, rng: Random) -> MathProblem:
    """Conditional probability: from counts, from rates, and back by Bayes."""
    if level <= 3:
        return _from_table(level, rng)
    return _from_rates(level, rng)


def _from_table(level: int, rng: Random) -> MathProblem:
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
    return pose_fraction(rng, result, steps, prompt)


def _from_rates(level: int, rng: Random) -> MathProblem:
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
    given = listed(
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
        return pose_fraction(rng, Fraction(whole, 10_000), steps, prompt)
    good = level in (8, 9, 10)
    at = rng.randrange(count)
    if not good:
        result = Fraction(products[at], whole)
        prompt = (
            f"In a factory {given}. A part taken at random is faulty. What is the probability that machine "
            f"{names[at]} made it?"
        )
        return pose_fraction(rng, result, [*steps, f"{products[at]} / {whole} = {number(result)}"], prompt)
    fine = [s * (100 - r) for s, r in zip(shares, rates, strict=True)]
    result = Fraction(fine[at], sum(fine))
    prompt = (
        f"In a factory {given}. A part taken at random is not faulty. What is the probability that machine "
        f"{names[at]} made it?"
    )
    steps = [f"{s} * (100 - {r}) = {p}" for s, r, p in zip(shares, rates, fine, strict=True)]
    steps += [f"{' + '.join(map(str, fine))} = {sum(fine)}", f"{fine[at]} / {sum(fine)} = {number(result)}"]
    return pose_fraction(rng, result, steps, prompt)
