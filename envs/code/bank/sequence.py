"""Problems about lists of numbers, and about stretches, windows, walls and bars in them."""

from loomrl.envs.code.draw import ascending, choice, integer, numbers, pairs, several, spans
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
    ProblemPattern(
        "range_sums",
        4,
        "items: list[int], queries: list[tuple[int, int]] -> list[int]",
        "For each query (start, end), return the sum of the items from position start up to but without position end.",
        """
        sums = [0]
        for item in items:
            sums.append(sums[-1] + item)
        return [sums[end] - sums[start] for start, end in queries]
        """,
        (numbers(-9, 20, fewest=8, most=9), pairs(integer(0, 3), integer(3, 8), 0, 4)),
        slow="""
        results = []
        for start, end in queries:
            total = 0
            for place in range(start, end):
                total += items[place]
            results.append(total)
        return results
        """,
        large=(_MANY, pairs(integer(0, 1000), integer(15_000, 20_000), 7000, 8000)),
    ),
    ProblemPattern(
        "best_window",
        5,
        "items: list[int], width: int -> int",
        "Return the largest sum of width neighbouring items. There are at least width items, and width is at least 1.",
        """
        total = sum(items[:width])
        best = total
        for place in range(width, len(items)):
            total += items[place] - items[place - width]
            best = max(best, total)
        return best
        """,
        (numbers(-9, 20, fewest=4, most=9), integer(1, 4)),
        slow="""
        best = sum(items[:width])
        for start in range(len(items) - width + 1):
            total = 0
            for place in range(start, start + width):
                total += items[place]
            best = max(best, total)
        return best
        """,
        large=(_MANY, integer(8000, 10_000)),
    ),
    ProblemPattern(
        "largest_stretch",
        6,
        "items: list[int] -> int",
        "Return the largest sum of one or more neighbouring items. There is at least one item.",
        """
        current = best = items[0]
        for item in items[1:]:
            current = max(current, 0) + item
            best = max(best, current)
        return best
        """,
        (numbers(-12, 9, fewest=1),),
        slow="""
        best = items[0]
        for start in range(len(items)):
            total = 0
            for end in range(start, len(items)):
                total += items[end]
                best = max(best, total)
        return best
        """,
        large=(_MANY,),
    ),
    ProblemPattern(
        "merge_intervals",
        6,
        "intervals: list[tuple[int, int]] -> list[tuple[int, int]]",
        "Join intervals (start, end) that overlap or touch, and return what is left in ascending order.",
        """
        merged = []
        for start, end in sorted(intervals):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((start, end))
        return merged
        """,
        (spans(integer(0, 20), integer(1, 7), 0, 6),),
    ),
    ProblemPattern(
        "next_greater",
        7,
        "items: list[int] -> list[int]",
        "For each item return the first greater one behind it, or -1 if there is none. All are at least 0.",
        """
        result = [-1] * len(items)
        waiting = []
        for place, item in enumerate(items):
            while waiting and items[waiting[-1]] < item:
                result[waiting.pop()] = item
            waiting.append(place)
        return result
        """,
        (numbers(0, 12),),
        slow="""
        result = []
        for place in range(len(items)):
            greater = -1
            for other in range(len(items) - 1, place, -1):
                if items[other] > items[place]:
                    greater = items[other]
            result.append(greater)
        return result
        """,
        large=(several(integer(0, 10**6), 15_000, 20_000),),
    ),
    ProblemPattern(
        "stretches_with_sum",
        7,
        "items: list[int], total: int -> int",
        "Return how many stretches of one or more neighbouring items have the sum total.",
        """
        counts = {0: 1}
        reached = 0
        found = 0
        for item in items:
            reached += item
            found += counts.get(reached - total, 0)
            counts[reached] = counts.get(reached, 0) + 1
        return found
        """,
        (numbers(-4, 5), integer(0, 6)),
        slow="""
        found = 0
        for start in range(len(items)):
            reached = 0
            for end in range(start, len(items)):
                reached += items[end]
                if reached == total:
                    found += 1
        return found
        """,
        large=(several(integer(-9, 9), 15_000, 20_000), integer(0, 20)),
    ),
    ProblemPattern(
        "rooms_needed",
        7,
        "meetings: list[tuple[int, int]] -> int",
        "Each meeting (start, end) needs a room from start up to but without end, and start < end. Return the smallest "
        "number of rooms.",
        """
        events = []
        for start, end in meetings:
            events.append((start, 1))
            events.append((end, -1))
        needed = most = 0
        for time, change in sorted(events):
            needed += change
            most = max(most, needed)
        return most
        """,
        (spans(integer(0, 12), integer(1, 5), 0, 6),),
        slow="""
        most = 0
        for start, end in meetings:
            for time in range(start, end):
                needed = 0
                for first, last in meetings:
                    if first <= time < last:
                        needed += 1
                most = max(most, needed)
        return most
        """,
        large=(spans(integer(0, 9000), integer(1, 900), 6000, 8000),),
    ),
    ProblemPattern(
        "trapped_rain",
        8,
        "heights: list[int] -> int",
        "The heights are those of neighbouring walls of width 1, at least 0 each. Return how much rain stays between "
        "them.",
        """
        left, right = 0, len(heights) - 1
        left_wall = right_wall = water = 0
        while left < right:
            if heights[left] < heights[right]:
                left_wall = max(left_wall, heights[left])
                water += left_wall - heights[left]
                left += 1
            else:
                right_wall = max(right_wall, heights[right])
                water += right_wall - heights[right]
                right -= 1
        return water
        """,
        (numbers(0, 9),),
        slow="""
        water = 0
        for place in range(len(heights)):
            left_wall = right_wall = 0
            for other in range(place + 1):
                left_wall = max(left_wall, heights[other])
            for other in range(place, len(heights)):
                right_wall = max(right_wall, heights[other])
            water += min(left_wall, right_wall) - heights[place]
        return water
        """,
        large=(several(integer(0, 10**4), 15_000, 20_000),),
    ),
    ProblemPattern(
        "window_maxima",
        9,
        "items: list[int], width: int -> list[int]",
        "Return the largest item of each stretch of width neighbouring items, from left to right. There are at least "
        "width items, and width is at least 1.",
        """
        from collections import deque
        best = deque()
        result = []
        for place, item in enumerate(items):
            while best and items[best[-1]] <= item:
                best.pop()
            best.append(place)
            if best[0] <= place - width:
                best.popleft()
            if place >= width - 1:
                result.append(items[best[0]])
        return result
        """,
        (numbers(0, 12, fewest=4, most=9), integer(1, 4)),
        slow="""
        result = []
        for start in range(len(items) - width + 1):
            best = items[start]
            for place in range(start, start + width):
                if items[place] > best:
                    best = items[place]
            result.append(best)
        return result
        """,
        large=(_MANY, integer(8000, 10_000)),
    ),
    ProblemPattern(
        "largest_rectangle",
        10,
        "heights: list[int] -> int",
        "The heights are those of neighbouring bars of width 1, at least 0 each. Return the area of the largest "
        "rectangle that lies within them.",
        """
        best = 0
        starts = []
        for place, height in enumerate(heights + [0]):
            start = place
            while starts and starts[-1][1] >= height:
                start, previous = starts.pop()
                best = max(best, previous * (place - start))
            starts.append((start, height))
        return best
        """,
        (numbers(0, 9),),
        slow="""
        best = 0
        for start in range(len(heights)):
            lowest = heights[start]
            for end in range(start, len(heights)):
                lowest = min(lowest, heights[end])
                best = max(best, lowest * (end - start + 1))
        return best
        """,
        large=(several(integer(0, 10**4), 15_000, 20_000),),
    ),
    ProblemPattern(
        "cheapest_merge",
        10,
        "sizes: list[int] -> int",
        "Neighbouring piles are merged two at a time, until one is left; merging costs the sum of both sizes. Only "
        "neighbours can be merged. Return the smallest total cost, 0 if there are fewer than two piles.",
        """
        count = len(sizes)
        sums = [0]
        for size in sizes:
            sums.append(sums[-1] + size)
        cost = [[0] * count for pile in sizes]
        for length in range(2, count + 1):
            for start in range(count - length + 1):
                end = start + length - 1
                options = [cost[start][cut] + cost[cut + 1][end] for cut in range(start, end)]
                cost[start][end] = min(options) + sums[end + 1] - sums[start]
        return cost[0][count - 1] if sizes else 0
        """,
        (numbers(1, 20, most=6),),
        slow="""
        if len(sizes) < 2:
            return 0
        best = None
        for cut in range(1, len(sizes)):
            total = cheapest_merge(sizes[:cut]) + cheapest_merge(sizes[cut:])
            if best is None or total < best:
                best = total
        return best + sum(sizes)
        """,
        large=(several(integer(1, 100), 35, 40),),
    ),
    ProblemPattern(
        "zigzag",
        8,
        "items: list[int] -> int",
        "Return the length of the longest stretch of neighbouring items that goes up and down in turns, each item "
        "different from the one before; a single item counts as 1, no items as 0.",
        """
        best = current = min(len(items), 1)
        before = 0
        for first, second in zip(items, items[1:]):
            direction = (second > first) - (second < first)
            if direction == 0:
                current = 1
            elif direction == -before:
                current += 1
            else:
                current = 2
            before = direction
            best = max(best, current)
        return best
        """,
        (numbers(0, 5),),
    ),
)
