"""Problems about neighbours: stretches, windows, walls and bars."""

from loomrl.envs.code.draw import integer, numbers, pairs, several, spans
from loomrl.envs.code.problem import ProblemPattern

_MANY = several(integer(-(10**6), 10**6), 20_000, 25_000)
_SMALL = numbers()

PATTERNS = (
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
