"""Problems about whole numbers."""

from loomrl.envs.code.draw import choice, composite, integer, nearly_prime, numbers, sometimes
from loomrl.envs.code.problem import ProblemPattern

PATTERNS = (
    ProblemPattern(
        "sum_multiples",
        1,
        "n: int -> int",
        "Return the sum of all multiples of {k} from {k} up to n, n included.",
        """
        count = n // {k}
        return {k} * count * (count + 1) // 2
        """,
        (integer(0, 60),),
        slow="""
        total = 0
        for number in range(1, n + 1):
            if number % {k} == 0:
                total += number
        return total
        """,
        large=(integer(10**11, 9 * 10**11),),
        constants={"k": (2, 9)},
    ),
    ProblemPattern(
        "count_multiples",
        1,
        "low: int, high: int -> int",
        "Return how many numbers from low to high, both included, are divisible by {k}. Here 1 <= low <= high.",
        """
        return high // {k} - (low - 1) // {k}
        """,
        (integer(1, 30), integer(30, 70)),
        slow="""
        count = 0
        for number in range(low, high + 1):
            if number % {k} == 0:
                count += 1
        return count
        """,
        large=(integer(1, 10**6), integer(10**11, 9 * 10**11)),
        constants={"k": (2, 12)},
    ),
    ProblemPattern(
        "sum_squares",
        2,
        "n: int -> int",
        "Return {k} times the sum of the squares 1*1 + 2*2 + ... + n*n.",
        """
        return {k} * n * (n + 1) * (2 * n + 1) // 6
        """,
        (integer(0, 20),),
        slow="""
        total = 0
        for number in range(1, n + 1):
            total += {k} * number * number
        return total
        """,
        large=(integer(10**10, 9 * 10**10),),
        constants={"k": (2, 9)},
    ),
    ProblemPattern(
        "digit_sum",
        2,
        "n: int -> int",
        "Return {k} times the sum of the decimal digits of n, which is not negative.",
        """
        total = 0
        for digit in str(n):
            total += int(digit)
        return {k} * total
        """,
        (integer(0, 9999),),
        constants={"k": (2, 9)},
    ),
    ProblemPattern(
        "clamp",
        2,
        "n: int -> int",
        "Return n, but {low} where n is smaller than {low}, and {high} where n is larger than {high}.",
        """
        if n < {low}:
            return {low}
        if n > {high}:
            return {high}
        return n
        """,
        (integer(-12, 40),),
        constants={"low": (-9, 5), "high": (12, 30)},
    ),
    ProblemPattern(
        "fizz",
        3,
        "n: int -> str",
        "Return 'both' if n is divisible by {a} and by {b}, 'first' if only by {a}, 'second' if only by {b}, and "
        "otherwise n as text.",
        """
        if n % {a} == 0 and n % {b} == 0:
            return 'both'
        if n % {a} == 0:
            return 'first'
        if n % {b} == 0:
            return 'second'
        return str(n)
        """,
        (integer(1, 99),),
        constants={"a": (2, 4), "b": (5, 7)},
    ),
    ProblemPattern(
        "common_divisor",
        2,
        "a: int, b: int -> int",
        "Return the greatest number that divides both a and b without remainder. Both are at least 1.",
        """
        while b:
            a, b = b, a % b
        return a
        """,
        (choice((6, 12, 18, 20, 24, 35, 36, 48, 60)), integer(1, 60)),
    ),
    ProblemPattern(
        "power_rest",
        3,
        "base: int, exponent: int, modulus: int -> int",
        "Return the remainder of base to the power of exponent, divided by modulus, plus {k}. "
        "The exponent may be 0, and modulus is at least 2.",
        """
        return pow(base, exponent, modulus) + {k}
        """,
        (integer(2, 30), integer(0, 12), integer(2, 60)),
        slow="""
        result = 1
        for turn in range(exponent):
            result = result * base % modulus
        return result + {k}
        """,
        large=(integer(2, 999), integer(10**11, 10**12), integer(10**5, 10**6)),
        constants={"k": (1, 9)},
    ),
    ProblemPattern(
        "digits_in_base",
        4,
        "n: int -> list[int]",
        "Return the digits of n, which is at least 0, in base {k}, the most significant first; [0] for 0.",
        """
        if n == 0:
            return [0]
        digits = []
        while n > 0:
            digits.append(n % {k})
            n //= {k}
        return digits[::-1]
        """,
        (sometimes(integer(0, 999), integer(0, 9)),),
        constants={"k": (2, 9)},
    ),
    ProblemPattern(
        "recurrence",
        4,
        "n: int -> int",
        "A sequence begins with {a}, {b}; each further number is {p} times the one before plus the one before that, "
        "and of this the remainder when divided by 10007. Return the number at position n, counted from 0.",
        """
        first, second = {a}, {b}
        for turn in range(n):
            first, second = second, ({p} * second + first) % 10007
        return first
        """,
        (integer(0, 12),),
        slow="""
        if n == 0:
            return {a}
        if n == 1:
            return {b}
        return ({p} * recurrence(n - 1) + recurrence(n - 2)) % 10007
        """,
        large=(integer(900, 1200),),
        constants={"a": (1, 5), "b": (2, 9), "p": (2, 5)},
    ),
    ProblemPattern(
        "count_divisors",
        4,
        "n: int -> int",
        "Return how many numbers from 1 to n divide n without remainder. Here n is at least 1.",
        """
        count = 0
        divisor = 1
        while divisor * divisor <= n:
            if n % divisor == 0:
                count += 1 if divisor * divisor == n else 2
            divisor += 1
        return count
        """,
        (sometimes(integer(1, 100), choice((16, 25, 36, 49, 64, 12, 60))),),
        slow="""
        count = 0
        for divisor in range(1, n + 1):
            if n % divisor == 0:
                count += 1
        return count
        """,
        large=(composite(10**4, 10**5),),
    ),
    ProblemPattern(
        "collatz",
        5,
        "n: int -> int",
        "As long as n, which is at least 1, is not 1, replace it: by its half if it is even, otherwise by 3 times n "
        "plus 1. Return the number of steps, but at most {k}.",
        """
        steps = 0
        while n != 1 and steps < {k}:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps
        """,
        (integer(1, 60),),
        constants={"k": (12, 30)},
    ),
    ProblemPattern(
        "prime_factors",
        6,
        "n: int -> list[int]",
        "Return the prime factors of n, which is at least 2, in ascending order, each as often as it divides n.",
        """
        factors = []
        divisor = 2
        while divisor * divisor <= n:
            while n % divisor == 0:
                factors.append(divisor)
                n //= divisor
            divisor += 1
        if n > 1:
            factors.append(n)
        return factors
        """,
        (integer(2, 200),),
        slow="""
        factors = []
        divisor = 2
        while n > 1:
            if n % divisor == 0:
                factors.append(divisor)
                n //= divisor
            else:
                divisor += 1
        return factors
        """,
        large=(nearly_prime(10**7, 2 * 10**7),),
    ),
    ProblemPattern(
        "primes_below",
        6,
        "n: int -> int",
        "Return how many prime numbers are smaller than n.",
        """
        sieve = [True] * max(n, 2)
        sieve[0] = sieve[1] = False
        for number in range(2, n):
            if number * number >= n:
                break
            if sieve[number]:
                sieve[number * number::number] = [False] * len(sieve[number * number::number])
        return sum(sieve)
        """,
        (integer(0, 60),),
        slow="""
        count = 0
        for number in range(2, n):
            divisors = 0
            for divisor in range(1, number + 1):
                if number % divisor == 0:
                    divisors += 1
            if divisors == 2:
                count += 1
        return count
        """,
        large=(integer(20_000, 40_000),),
    ),
    ProblemPattern(
        "roman",
        5,
        "n: int -> str",
        "Return n, from 1 to 3999, as a Roman numeral, such as 'XIV' for 14.",
        """
        values = [1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1]
        symbols = 'M CM D CD C XC L XL X IX V IV I'.split()
        text = ''
        for value, symbol in zip(values, symbols):
            while n >= value:
                text += symbol
                n -= value
        return text
        """,
        (sometimes(integer(1, 3999), choice((4, 9, 40, 90, 400, 900, 444, 999, 1949, 3888))),),
    ),
    ProblemPattern(
        "josephus",
        6,
        "n: int, step: int -> int",
        "The people 1 to n stand in a circle. Beginning with 1, count to step, take out whoever it ends at, and go on "
        "counting with the next one, until one is left. Return that one.",
        """
        place = 0
        for size in range(2, n + 1):
            place = (place + step) % size
        return place + 1
        """,
        (integer(1, 12), integer(1, 7)),
    ),
    ProblemPattern(
        "coin_ways",
        8,
        "coins: list[int], total: int -> int",
        "Return in how many ways total can be paid with coins of these different values, each used as often as wanted; "
        "the order does not matter.",
        """
        ways = [1] + [0] * total
        for coin in coins:
            for amount in range(coin, total + 1):
                ways[amount] += ways[amount - coin]
        return ways[total]
        """,
        (choice(([1, 2, 5], [2, 3], [1, 3, 4], [3, 5, 7], [2, 4], [5], [1, 5, 10])), integer(0, 20)),
        slow="""
        if total == 0:
            return 1
        if total < 0 or not coins:
            return 0
        return coin_ways(coins, total - coins[0]) + coin_ways(coins[1:], total)
        """,
        large=(choice(([1, 2, 5, 10, 20], [1, 3, 4, 7, 9], [2, 3, 5, 7, 11])), integer(600, 900)),
    ),
    ProblemPattern(
        "fewest_squares",
        8,
        "n: int -> int",
        "Return the smallest number of square numbers (1, 4, 9, ...) whose sum is n, which is at least 1.",
        """
        best = [0] * (n + 1)
        for amount in range(1, n + 1):
            best[amount] = amount
            root = 1
            while root * root <= amount:
                best[amount] = min(best[amount], best[amount - root * root] + 1)
                root += 1
        return best[n]
        """,
        (integer(1, 60),),
    ),
    ProblemPattern(
        "queens",
        10,
        "n: int, blocked: list[int] -> int",
        "Return in how many ways n queens can stand on an n by n board, so that no two are in the same row, column or "
        "diagonal, and in row i no queen is in column blocked[i] (rows and columns counted from 0; -1 blocks nothing).",
        """
        def place(columns):
            row = len(columns)
            if row == n:
                return 1
            count = 0
            for column in range(n):
                if column == blocked[row] or column in columns:
                    continue
                if all((abs(column - other) != row - line for line, other in enumerate(columns))):
                    count += place(columns + [column])
            return count
        return place([])
        """,
        (choice((4, 5)), numbers(-1, 4, fewest=5, most=5)),
    ),
)
