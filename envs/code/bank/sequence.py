"""Problems about lists of numbers."""

from loomrl.envs.code.draw import ascending, choice, integer, numbers, pairs, several
from loomrl.envs.code.problem import ProblemPattern

_MANY = several(integer(-(10**6), 10**6), 20_000, 25_000)
_SMALL = numbers()

PATTERNS = (
    ProblemPattern(
        "count_repeated",
        2,
        "items: list[int] -> int",
        "Return how many different numbers occur more than once in items.",
        """
        seen = set()
        again = set()
        for item in items:
            if item in seen:
                again.add(item)
            seen.add(item)
        return len(again)
        """,
        (numbers(0, 9),),
        slow="""
        found = 0
        for place in range(len(items)):
            before = after = 0
            for other in range(len(items)):
                if items[other] == items[place]:
                    if other < place:
                        before += 1
                    if other > place:
                        after += 1
            if before == 0 and after > 0:
                found += 1
        return found
        """,
        large=(_MANY,),
    ),
    ProblemPattern(
        "without_repetition",
        3,
        "items: list[int] -> list[int]",
        "Return items without repetitions: each number where it first occurs.",
        """
        seen = set()
        result = []
        for item in items:
            if item not in seen:
                seen.add(item)
                result.append(item)
        return result
        """,
        (numbers(0, 9),),
        slow="""
        result = []
        for item in items:
            known = False
            for other in result:
                if other == item:
                    known = True
            if not known:
                result.append(item)
        return result
        """,
        large=(_MANY,),
    ),
    ProblemPattern(
        "count_common",
        3,
        "first: list[int], second: list[int] -> int",
        "Return how many items of first also occur in second. Equal items of first count each.",
        """
        known = set(second)
        count = 0
        for item in first:
            if item in known:
                count += 1
        return count
        """,
        (numbers(0, 9), numbers(0, 9)),
        slow="""
        count = 0
        for item in first:
            found = False
            for other in second:
                if item == other:
                    found = True
            if found:
                count += 1
        return count
        """,
        large=(_MANY, _MANY),
    ),
    ProblemPattern(
        "second_largest",
        4,
        "items: list[int] -> int",
        "Return the second largest of the different numbers in items, or {k} if there are fewer than two of them.",
        """
        ordered = sorted(set(items))
        if len(ordered) < 2:
            return {k}
        return ordered[-2]
        """,
        (numbers(0, 9, most=6),),
        constants={"k": (-9, -1)},
    ),
    ProblemPattern(
        "rotate",
        4,
        "items: list[int], steps: int -> list[int]",
        "Move all items steps places to the right; what leaves at the end comes in at the front. "
        "Negative steps move them to the left.",
        """
        if not items:
            return []
        steps %= len(items)
        return items[len(items) - steps:] + items[:len(items) - steps]
        """,
        (_SMALL, integer(-6, 9)),
    ),
    ProblemPattern(
        "pairs_with_sum",
        5,
        "items: list[int], total: int -> int",
        "Return how many pairs of positions (i, j) with i < j have items[i] + items[j] equal to total.",
        """
        counts = {}
        found = 0
        for item in items:
            found += counts.get(total - item, 0)
            counts[item] = counts.get(item, 0) + 1
        return found
        """,
        (numbers(0, 9), integer(4, 12)),
        slow="""
        found = 0
        for first in range(len(items)):
            for second in range(first + 1, len(items)):
                if items[first] + items[second] == total:
                    found += 1
        return found
        """,
        large=(_MANY, integer(-100, 100)),
    ),
    ProblemPattern(
        "best_profit",
        5,
        "prices: list[int] -> int",
        "Buy on one day and sell on a later day; both together cost a fee of {k}. Return the largest profit, "
        "0 if there is none.",
        """
        lowest = None
        best = 0
        for price in prices:
            if lowest is not None:
                best = max(best, price - lowest - {k})
            if lowest is None or price < lowest:
                lowest = price
        return best
        """,
        (numbers(1, 30, fewest=1, most=8),),
        slow="""
        best = 0
        for first in range(len(prices)):
            for second in range(first + 1, len(prices)):
                best = max(best, prices[second] - prices[first] - {k})
        return best
        """,
        large=(several(integer(1, 10**6), 15_000, 20_000),),
        constants={"k": (1, 6)},
    ),
    ProblemPattern(
        "count_inversions",
        8,
        "items: list[int] -> int",
        "Return how many pairs of positions (i, j) with i < j have items[i] > items[j].",
        """
        from bisect import bisect_right, insort
        ordered = []
        count = 0
        for item in items:
            count += len(ordered) - bisect_right(ordered, item)
            insort(ordered, item)
        return count
        """,
        (numbers(0, 9),),
        slow="""
        count = 0
        for first in range(len(items)):
            for second in range(first + 1, len(items)):
                if items[first] > items[second]:
                    count += 1
        return count
        """,
        large=(_MANY,),
    ),
    ProblemPattern(
        "rising_length",
        9,
        "items: list[int] -> int",
        "Return the largest number of items that can be left when others are taken out of the list, so that what is "
        "left rises strictly.",
        """
        from bisect import bisect_left
        ends = []
        for item in items:
            place = bisect_left(ends, item)
            if place == len(ends):
                ends.append(item)
            else:
                ends[place] = item
        return len(ends)
        """,
        (numbers(0, 12),),
        slow="""
        lengths = []
        for place in range(len(items)):
            best = 0
            for other in range(place):
                if items[other] < items[place]:
                    best = max(best, lengths[other])
            lengths.append(best + 1)
        return max(lengths, default=0)
        """,
        large=(_MANY,),
    ),
    ProblemPattern(
        "heavy_pairs",
        10,
        "items: list[int] -> int",
        "Return how many pairs of positions (i, j) with i < j have items[i] > {k} * items[j].",
        """
        from bisect import bisect_right, insort
        ordered = []
        count = 0
        for item in items:
            count += len(ordered) - bisect_right(ordered, {k} * item)
            insort(ordered, item)
        return count
        """,
        (numbers(0, 20),),
        slow="""
        count = 0
        for first in range(len(items)):
            for second in range(first + 1, len(items)):
                if items[first] > {k} * items[second]:
                    count += 1
        return count
        """,
        large=(_MANY,),
        constants={"k": (2, 4)},
    ),
    ProblemPattern(
        "binary_search",
        5,
        "items: list[int], wanted: int -> int",
        "The items are in ascending order. Return the first position whose item is at least wanted, or the number of "
        "items if there is none.",
        """
        low, high = 0, len(items)
        while low < high:
            middle = (low + high) // 2
            if items[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        return low
        """,
        (ascending(numbers(0, 12)), integer(0, 13)),
        slow="""
        place = 0
        for item in items:
            if item < wanted:
                place += 1
        return place
        """,
        large=(ascending(several(integer(0, 10**6), 20_000, 25_000)), integer(5 * 10**5, 10**6)),
    ),
    ProblemPattern(
        "knapsack",
        9,
        "things: list[tuple[int, int]], capacity: int -> int",
        "Each thing is (weight, value) and can be taken once. Return the largest total value of things whose total "
        "weight is at most capacity.",
        """
        best = [0] * (capacity + 1)
        for weight, value in things:
            for room in range(capacity, weight - 1, -1):
                best[room] = max(best[room], best[room - weight] + value)
        return best[capacity]
        """,
        (pairs(integer(1, 6), integer(1, 12), 0, 6), integer(0, 14)),
        slow="""
        if not things:
            return 0
        weight, value = things[0]
        best = knapsack(things[1:], capacity)
        if weight <= capacity:
            best = max(best, value + knapsack(things[1:], capacity - weight))
        return best
        """,
        large=(pairs(integer(1, 9), integer(1, 99), 40, 50), integer(90, 120)),
    ),
    ProblemPattern(
        "next_permutation",
        9,
        "items: list[int] -> list[int]",
        "Return the next larger arrangement of the items, where arrangements are compared as lists; the smallest one "
        "if there is no larger one.",
        """
        result = list(items)
        pivot = len(result) - 2
        while pivot >= 0 and result[pivot] >= result[pivot + 1]:
            pivot -= 1
        if pivot < 0:
            return sorted(result)
        other = len(result) - 1
        while result[other] <= result[pivot]:
            other -= 1
        result[pivot], result[other] = result[other], result[pivot]
        return result[:pivot + 1] + result[pivot + 1:][::-1]
        """,
        (numbers(0, 4, most=5),),
    ),
    ProblemPattern(
        "average",
        3,
        "items: list[int] -> float",
        "Return the mean of the items as a float, and {k}.0 if there are none.",
        """
        if not items:
            return {k}.0
        return sum(items) / len(items)
        """,
        (choice(([], [4], [1, 2], [3, 3, 4], [10, -2], [7, 8, 9, 1], [0, 5], [-3], [2, 2, 2, 9, 1], [6, -6, 1])),),
        constants={"k": (1, 9)},
        tolerance=1e-9,
    ),
)
