"""Problems about dicts, grids, graphs and little machines."""

from loomrl.envs.code.draw import choice, flag, grid, integer, mapping, numbers, pairs, several, sometimes, word, words
from loomrl.envs.code.problem import ProblemPattern

_NAMES = choice(("Ann", "Bob", "Cyd", "Dan"))
_EDGES = pairs(integer(0, 4), integer(0, 4), 0, 7)

PATTERNS = (
    ProblemPattern(
        "count_words",
        3,
        "words: list[str] -> dict[str, int]",
        "Return how often each word occurs in words.",
        """
        counts = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        return counts
        """,
        (words(0, 8),),
    ),
    ProblemPattern(
        "total_by_name",
        4,
        "payments: list[tuple[str, int]] -> dict[str, int]",
        "Each payment is (name, amount). Return the sum of the amounts for each name; leave out names whose sum is "
        "less than {k}.",
        """
        totals = {}
        for name, amount in payments:
            totals[name] = totals.get(name, 0) + amount
        return {name: total for name, total in totals.items() if total >= {k}}
        """,
        (pairs(_NAMES, integer(-2, 6), 0, 8),),
        constants={"k": (1, 4)},
    ),
    ProblemPattern(
        "invert",
        4,
        "table: dict[str, int] -> dict[int, list[str]]",
        "Return for each value of table the list of its keys, in alphabetical order.",
        """
        inverted = {}
        for key in sorted(table):
            inverted.setdefault(table[key], []).append(key)
        return inverted
        """,
        (mapping(word(), integer(0, 3), 0, 6),),
    ),
    ProblemPattern(
        "transpose",
        4,
        "rows: list[list[int]] -> list[list[int]]",
        "Return the columns of the table rows as rows, each number multiplied by {k}.",
        """
        return [[{k} * row[column] for row in rows] for column in range(len(rows[0]))]
        """,
        (grid(integer(-9, 9)),),
        constants={"k": (2, 9)},
    ),
    ProblemPattern(
        "turn_right",
        5,
        "rows: list[list[int]] -> list[list[int]]",
        "Return the table rows turned clockwise by a quarter.",
        """
        height = len(rows)
        width = len(rows[0])
        return [[rows[height - 1 - line][column] for line in range(height)] for column in range(width)]
        """,
        (grid(integer(0, 9)),),
    ),
    ProblemPattern(
        "top_words",
        6,
        "words: list[str] -> list[str]",
        "Return the {k} most frequent words, the most frequent first, equally frequent ones in alphabetical order; "
        "all of them if there are fewer.",
        """
        counts = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return ordered[:{k}]
        """,
        (several(choice(("ant", "bee", "cat", "dog", "eel")), 0, 9),),
        constants={"k": (2, 3)},
    ),
    ProblemPattern(
        "spiral",
        7,
        "rows: list[list[int]] -> list[int]",
        "Return the numbers of the table rows in the order of a clockwise spiral that begins at the top left.",
        """
        result = []
        rest = [list(row) for row in rows]
        while rest:
            result += rest[0]
            rest = [list(column) for column in zip(*rest[1:])][::-1]
        return result
        """,
        (grid(integer(0, 9)),),
    ),
    ProblemPattern(
        "count_islands",
        7,
        "rows: list[list[int]] -> int",
        "The table rows shows land as 1 and water as 0. Return the number of islands: land that is connected "
        "horizontally or vertically is one island.",
        """
        land = set()
        for line, row in enumerate(rows):
            land.update(((line, column) for column, cell in enumerate(row) if cell == 1))
        islands = 0
        while land:
            islands += 1
            border = [min(land)]
            while border:
                line, column = border.pop()
                if (line, column) in land:
                    land.remove((line, column))
                    border += [(line + 1, column), (line - 1, column)]
                    border += [(line, column + 1), (line, column - 1)]
        return islands
        """,
        (grid(integer(0, 1), 1, 5),),
    ),
    ProblemPattern(
        "run_stack",
        6,
        "commands: list[str] -> list[int]",
        "Run the commands on an empty stack, and return the stack, the top last. A number is put on top; 'drop' takes "
        "the top off; 'copy' puts the top on once more; 'add' replaces the upper two by their sum. What needs more "
        "numbers than there are does nothing.",
        """
        stack = []
        for command in commands:
            if command == 'drop':
                stack = stack[:-1]
            elif command == 'copy':
                stack += stack[-1:]
            elif command == 'add':
                if len(stack) > 1:
                    stack = stack[:-2] + [stack[-2] + stack[-1]]
            else:
                stack.append(int(command))
        return stack
        """,
        (several(sometimes(choice(("1", "2", "7", "-4", "12")), choice(("drop", "copy", "add"))), 0, 9),),
    ),
    ProblemPattern(
        "run_robot",
        6,
        "commands: str -> tuple[int, int]",
        "A robot starts at (0, 0) and looks north. 'F' moves it {k} fields forward, 'B' one field backward, 'L' and "
        "'R' turn it by a quarter. Return where it ends as (east, north).",
        """
        east, north = 0, 0
        ahead = (0, 1)
        for command in commands:
            if command == 'L':
                ahead = (-ahead[1], ahead[0])
            elif command == 'R':
                ahead = (ahead[1], -ahead[0])
            else:
                steps = {k} if command == 'F' else -1
                east += steps * ahead[0]
                north += steps * ahead[1]
        return (east, north)
        """,
        (lambda rng: "".join(rng.choice("FFFBLR") for _ in range(rng.randint(0, 9))),),
        constants={"k": (2, 5)},
    ),
    ProblemPattern(
        "life",
        8,
        "rows: list[list[int]] -> list[list[int]]",
        "The table rows shows living cells as 1. Return the next generation: a living cell stays alive with 2 or {k} "
        "living neighbours, a dead one comes alive with exactly {k}; neighbours may be diagonal, and there are none "
        "outside.",
        """
        result = []
        for line, row in enumerate(rows):
            after = []
            for column, cell in enumerate(row):
                near = -cell
                for other in rows[max(line - 1, 0):line + 2]:
                    near += sum(other[max(column - 1, 0):column + 2])
                after.append(1 if near == {k} or (cell == 1 and near == 2) else 0)
            result.append(after)
        return result
        """,
        (grid(integer(0, 1), 2, 5),),
        constants={"k": (3, 3)},
    ),
    ProblemPattern(
        "recent_cache",
        8,
        "keys: list[int] -> list[bool]",
        "A cache keeps {k} keys. For each key asked for, return whether the cache has it; if not, it is put in, and "
        "the key that was not asked for for the longest time leaves when there is no room.",
        """
        cache = []
        hits = []
        for key in keys:
            hits.append(key in cache)
            if key in cache:
                cache.remove(key)
            cache.append(key)
            cache = cache[-{k}:]
        return hits
        """,
        (numbers(0, 5, most=10),),
        constants={"k": (2, 4)},
    ),
    ProblemPattern(
        "work_order",
        9,
        "count: int, edges: list[tuple[int, int]] -> list[int]",
        "There are jobs from 0 to count - 1; an edge (a, b) says that a must be done before b. Return an order of all "
        "jobs that always takes the smallest job that can be done next, or [] if there is no order.",
        """
        needs = {job: set() for job in range(count)}
        for first, second in edges:
            needs[second].add(first)
        order = []
        while needs:
            ready = [job for job in needs if not needs[job]]
            if not ready:
                return []
            job = min(ready)
            del needs[job]
            order.append(job)
            for others in needs.values():
                others.discard(job)
        return order
        """,
        (
            choice((5, 6)),
            sometimes(_EDGES, pairs(integer(0, 2), integer(3, 4), 0, 6)),
        ),
    ),
    ProblemPattern(
        "cheapest_way",
        9,
        "rows: list[list[int]] -> int",
        "Go from the top left to the bottom right of the table rows, each step one field right or down; entering a "
        "field costs its number, also the first and the last one. Each step down costs {k} more. Return the smallest "
        "total cost.",
        """
        best = []
        for line, row in enumerate(rows):
            costs = []
            for column, cell in enumerate(row):
                options = []
                if line > 0:
                    options.append(best[column] + {k})
                if column > 0:
                    options.append(costs[-1])
                costs.append(cell + min(options, default=0))
            best = costs
        return best[-1]
        """,
        (grid(integer(0, 9)),),
        slow="""
        def from_field(line, column):
            if line == len(rows) - 1 and column == len(rows[0]) - 1:
                return rows[line][column]
            options = []
            if line + 1 < len(rows):
                options.append(from_field(line + 1, column) + {k})
            if column + 1 < len(rows[0]):
                options.append(from_field(line, column + 1))
            return rows[line][column] + min(options)
        return from_field(0, 0)
        """,
        large=(grid(integer(0, 99), 20, 24),),
        constants={"k": (1, 5)},
    ),
    ProblemPattern(
        "shortest_distances",
        10,
        "count: int, roads: list[tuple[int, int]] -> list[int]",
        "There are towns from 0 to count - 1. A road (a, b) can be used in both directions and has the length a + b. "
        "Return the length of the shortest way from town 0 to each town, -1 where there is none.",
        """
        distances = [-1] * count
        reached = {0: 0}
        while reached:
            town = min(reached, key=lambda name: (reached[name], name))
            length = reached.pop(town)
            distances[town] = length
            for first, second in roads:
                for start, end in ((first, second), (second, first)):
                    if start == town and distances[end] < 0:
                        option = length + first + second
                        reached[end] = min(reached.get(end, option), option)
        return distances
        """,
        (choice((5, 6)), pairs(integer(0, 4), integer(0, 4), 2, 8)),
    ),
    ProblemPattern(
        "settle_accounts",
        10,
        "orders: list[tuple[str, int]], closed: bool -> list[tuple[str, int]]",
        "Accounts begin at 0. An order (name, amount) adds the amount, but is refused if the account would fall below "
        "-{k}; an account with two refused orders is frozen, and all its further orders are refused. Return (name, "
        "balance) of all accounts that had an order, the largest balance first and equal ones by name; without the "
        "frozen ones if closed.",
        """
        balances = {}
        refused = {}
        for name, amount in orders:
            balance = balances.setdefault(name, 0)
            if refused.get(name, 0) >= 2:
                continue
            if balance + amount < -{k}:
                refused[name] = refused.get(name, 0) + 1
            else:
                balances[name] = balance + amount
        names = [name for name in balances if not closed or refused.get(name, 0) < 2]
        return sorted(((name, balances[name]) for name in names), key=lambda pair: (-pair[1], pair[0]))
        """,
        (pairs(choice(("Ann", "Bob")), integer(-9, 6), 0, 9), flag()),
        constants={"k": (2, 5)},
    ),
)
