"""Counting: choices, arrangements, committees, words, paths."""

from math import comb, factorial
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.notation import listing
from loomrl.envs.math.problem import Problem, phrase


def counting(level: int, rng: Random) -> Problem:
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
    return Problem(prompt, Answer(str(result)), tuple(steps))


Counted = tuple[str, int, list[str]]


def _menu(level: int, rng: Random) -> Counted:
    sizes = [rng.randint(2, 15) for _ in range(level + 2)]
    running = sizes[0]
    steps = []
    for size in sizes[1:]:
        steps.append(f"{running} * {size} = {running * size}")
        running *= size
    nouns = rng.sample(("starters", "main courses", "desserts", "drinks", "soups"), len(sizes))
    choices = listing([f"{n} {noun}" for n, noun in zip(sizes, nouns, strict=True)])
    prompt = phrase(
        rng,
        f"A menu offers {choices}. How many different meals with one of each are there?",
        f"There are {choices} to choose from. In how many ways can one of each kind be picked?",
    )
    return prompt, running, steps


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
        prompt = phrase(
            rng,
            f"In how many ways can a committee of {k} be chosen from {n} people?",
            f"How many different sets of {k} cards can be taken from {n} different cards?",
            f"There are {n} teams. In how many ways can {k} of them be selected?",
        )
        return prompt, comb(n, k), [choose(n, k)]
    without = comb(n - 2, k)
    prompt = phrase(
        rng,
        f"From {n} people, {k} are chosen. Two of the people are twins. In how many of the possible choices "
        "is at least one twin chosen?",
        f"A team of {k} is formed from {n} players, two of whom are brothers. How many teams include at least "
        "one of the brothers?",
        f"{n} cards hold two aces. How many sets of {k} of these cards contain at least one ace?",
    )
    steps = [
        choose(n, k),
        f"Without these two: {n} - 2 = {n - 2}",
        choose(n - 2, k),
        f"{comb(n, k)} - {without} = {comb(n, k) - without}",
    ]
    return prompt, comb(n, k) - without, steps


def _two_groups(level: int, rng: Random) -> Counted:
    a = rng.randint(4, 25)
    b = rng.randint(4, 25)
    i = rng.randint(2, 3)
    j = rng.randint(2, 3)
    first = [choose(a, i), choose(b, j)]
    x, y = comb(a, i), comb(b, j)
    if level == 7:
        prompt = phrase(
            rng,
            f"A team of {i} women and {j} men is chosen from {a} women and {b} men. How many teams are possible?",
            f"From {a} novels and {b} comics, someone takes {i} novels and {j} comics. In how many ways?",
        )
        return prompt, x * y, [*first, f"{x} * {y} = {x * y}"]
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
    prompt = phrase(
        rng,
        f"In how many different orders can the {size} letters {' '.join(word)} be written?",
        f"How many different strings can be made by rearranging all {size} letters of {''.join(word)}?",
    )
    product = " * ".join(str(k) for k in range(size, 1, -1))
    repeated = " * ".join(str(factorial(n)) for n in counts if n > 1)
    return prompt, result, [f"{product} = {factorial(size)}", f"{factorial(size)} / ({repeated}) = {result}"]


def _paths(level: int, rng: Random) -> Counted:
    """Lattice paths through a given point."""
    a = rng.randint(2, 6)
    b = rng.randint(2, 6)
    c = rng.randint(2, 6)
    d = rng.randint(2, 6)
    x, y = comb(a + b, b), comb(c + d, d)
    prompt = phrase(
        rng,
        f"A robot moves on a grid, only one step right or one step up at a time, from (0, 0) to ({a + c}, "
        f"{b + d}). How many of its "
        f"paths pass through ({a}, {b})?",
        f"How many shortest grid paths lead from (0, 0) over ({a}, {b}) to ({a + c}, {b + d})?",
    )
    steps = [
        f"{a} + {b} = {a + b} steps lead to ({a}, {b}): {choose(a + b, b)}",
        f"From there ({a + c} - {a}) + ({b + d} - {b}) = {c + d} steps: {choose(c + d, d)}",
        f"{x} * {y} = {x * y}",
    ]
    return prompt, x * y, steps
