"""Problems about texts: letters, words, brackets, expressions, patterns, distances."""

from loomrl.envs.code.draw import choice, integer, sentence, several, sometimes, text, word, words
from loomrl.envs.code.problem import ProblemPattern

_BRACKETS = text("()[]()", 0, 8)

PATTERNS = (
    ProblemPattern(
        "count_letter",
        2,
        "text: str -> int",
        "Return how many letters of text are 'a' or 'e', plus {k}.",
        """
        count = {k}
        for letter in text:
            if letter in 'ae':
                count += 1
        return count
        """,
        (text("aebcxA", 0, 9),),
        constants={"k": (1, 9)},
    ),
    ProblemPattern(
        "frame",
        2,
        "text: str -> str",
        "Return the first letter of text repeated {k} times, followed by text. The text is not empty.",
        """
        return text[0] * {k} + text
        """,
        (word(),),
        constants={"k": (2, 5)},
    ),
    ProblemPattern(
        "is_palindrome",
        3,
        "text: str -> bool",
        "Return whether text reads the same from the left and from the right, and has more than {k} letters.",
        """
        return text == text[::-1] and len(text) > {k}
        """,
        (sometimes(word(), choice(("noon", "civic", "level", "abba", "aa", "a", "", "aba", "abcba", "deed"))),),
        constants={"k": (2, 4)},
    ),
    ProblemPattern(
        "initials",
        3,
        "text: str -> str",
        "Return the first letter of each word of text as capitals, with '.' behind each. "
        "Words are separated by single spaces.",
        """
        result = ''
        for word in text.split():
            result += word[0].upper() + '.'
        return result
        """,
        (sentence(),),
    ),
    ProblemPattern(
        "longest_word",
        3,
        "words: list[str] -> str",
        "Return the longest of the words, the first one of several equally long, and '' if there are none.",
        """
        best = ''
        for word in words:
            if len(word) > len(best):
                best = word
        return best
        """,
        (words(),),
    ),
    ProblemPattern(
        "shift_letters",
        4,
        "text: str -> str",
        "Replace each small letter by the one {k} places later in the alphabet, beginning again with 'a' after 'z'. "
        "Leave everything else as it is.",
        """
        result = ''
        for letter in text:
            if 'a' <= letter <= 'z':
                result += chr((ord(letter) - ord('a') + {k}) % 26 + ord('a'))
            else:
                result += letter
        return result
        """,
        (text("abcxyzmAZ ~`{", 0, 9),),
        constants={"k": (2, 12)},
    ),
    ProblemPattern(
        "squeeze",
        4,
        "text: str -> str",
        "Return text without letters that equal the one directly before them.",
        """
        result = ''
        for letter in text:
            if not result or result[-1] != letter:
                result += letter
        return result
        """,
        (text("aab b", 0, 9),),
    ),
    ProblemPattern(
        "run_lengths",
        5,
        "text: str -> list[tuple[str, int]]",
        "Return the runs of equal letters in text as (letter, length), in order.",
        """
        runs = []
        for letter in text:
            if runs and runs[-1][0] == letter:
                runs[-1] = (letter, runs[-1][1] + 1)
            else:
                runs.append((letter, 1))
        return runs
        """,
        (text("aabc", 0, 9),),
    ),
    ProblemPattern(
        "wrap_words",
        7,
        "text: str, width: int -> list[str]",
        "Break text into lines of at most width letters: put as many words as fit on each line, with single spaces "
        "between them. A word that is longer than width has a line of its own.",
        """
        lines = []
        line = ''
        for word in text.split():
            if line and len(line) + 1 + len(word) > width:
                lines.append(line)
                line = ''
            line = line + ' ' + word if line else word
        if line:
            lines.append(line)
        return lines
        """,
        (sentence(1, 9), integer(4, 16)),
    ),
    ProblemPattern(
        "longest_distinct",
        7,
        "text: str -> int",
        "Return the length of the longest stretch of neighbouring letters of text in which no letter occurs twice.",
        """
        last = {}
        best = 0
        start = 0
        for place, letter in enumerate(text):
            if last.get(letter, -1) >= start:
                start = last[letter] + 1
            last[letter] = place
            best = max(best, place - start + 1)
        return best
        """,
        (text("abcde", 0, 10),),
        slow="""
        best = 0
        for start in range(len(text)):
            for end in range(start, len(text)):
                repeated = False
                for first in range(start, end + 1):
                    for second in range(first + 1, end + 1):
                        if text[first] == text[second]:
                            repeated = True
                if not repeated:
                    best = max(best, end - start + 1)
        return best
        """,
        large=(text("".join(map(chr, range(200, 700))), 15_000, 20_000),),
    ),
    ProblemPattern(
        "spoken",
        5,
        "words: list[str] -> str",
        "Join the words with ', ' between them, but with ' and ' before the last one; '' if there are none.",
        """
        if len(words) < 2:
            return ''.join(words)
        return ', '.join(words[:-1]) + ' and ' + words[-1]
        """,
        (words(0, 5),),
    ),
    ProblemPattern(
        "anagram_groups",
        7,
        "words: list[str] -> list[list[str]]",
        "Group words that consist of the same letters. Groups come in the order of their first words, and words "
        "within a group in their order in the list; leave out groups with fewer than {k} words.",
        """
        groups = {}
        for word in words:
            key = ''.join(sorted(word))
            groups.setdefault(key, []).append(word)
        return [group for group in groups.values() if len(group) >= {k}]
        """,
        (several(choice(("abc", "cab", "bca", "ab", "ba", "dog", "god", "a", "cat", "act")), 0, 9),),
        constants={"k": (2, 3)},
    ),
    ProblemPattern(
        "balanced",
        6,
        "text: str -> bool",
        "Return whether the round and square brackets of text, which holds nothing else, are properly nested.",
        """
        open_brackets = []
        for letter in text:
            if letter in '([':
                open_brackets.append(letter)
                continue
            partner = '(' if letter == ')' else '['
            if not open_brackets or open_brackets.pop() != partner:
                return False
        return not open_brackets
        """,
        (sometimes(_BRACKETS, choice(("", "()", "([])", "[()[]]", "(())", "([)]", "()[]", "((", "[]]", "(]"))),),
    ),
    ProblemPattern(
        "repeat_groups",
        8,
        "text: str -> str",
        "Expand text: a digit (1 to 9) followed by square brackets repeats what is inside them so many times; groups "
        "may be nested, letters stay. For example '2[a3[b]]c' becomes 'abbbabbbc'.",
        """
        stack = []
        current = ''
        times = 0
        for letter in text:
            if letter.isdigit():
                times = int(letter)
            elif letter == '[':
                stack.append((current, times))
                current = ''
            elif letter == ']':
                before, count = stack.pop()
                current = before + current * count
            else:
                current += letter
        return current
        """,
        (
            choice(
                (
                    "ab",
                    "",
                    "2[a]",
                    "3[ab]c",
                    "2[a3[b]]c",
                    "x2[y]z",
                    "2[2[2[a]]]",
                    "1[a]b",
                    "2[ab2[cd]]e",
                    "4[z]2[y]",
                    "a2[b3[c]d]e",
                    "5[q]",
                    "3[a2[b]1[c]]",
                    "2[x]y3[z]",
                    "a1[2[b]c]d",
                    "3[d2[e]]f",
                    "2[3[g]h]",
                    "6[ij]",
                )
            ),
        ),
    ),
    ProblemPattern(
        "edit_distance",
        9,
        "first: str, second: str -> int",
        "Return the smallest total cost that turns first into second: inserting or deleting a letter costs {k}, "
        "replacing one by another costs {m}.",
        """
        row = [{k} * place for place in range(len(second) + 1)]
        for count, letter in enumerate(first, start=1):
            above = row
            row = [{k} * count]
            for place, other in enumerate(second):
                swap = above[place] + (0 if letter == other else {m})
                row.append(min(swap, above[place + 1] + {k}, row[place] + {k}))
        return row[-1]
        """,
        (text("abc", 0, 5), text("abc", 0, 5)),
        slow="""
        if not first or not second:
            return {k} * (len(first) + len(second))
        swap = 0 if first[0] == second[0] else {m}
        best = edit_distance(first[1:], second[1:]) + swap
        best = min(best, edit_distance(first[1:], second) + {k})
        return min(best, edit_distance(first, second[1:]) + {k})
        """,
        large=(text("abcd", 60, 70), text("abcd", 60, 70)),
        constants={"k": (2, 4), "m": (3, 5)},
    ),
    ProblemPattern(
        "common_subsequence",
        9,
        "first: str, second: str -> int",
        "Return the length of the longest text that is left of both first and second when letters are taken out of "
        "them; letters keep their order.",
        """
        row = [0] * (len(second) + 1)
        for letter in first:
            above = row
            row = [0]
            for place, other in enumerate(second):
                if letter == other:
                    row.append(above[place] + 1)
                else:
                    row.append(max(above[place + 1], row[place]))
        return row[-1]
        """,
        (text("abcd", 0, 7), text("abcd", 0, 7)),
        slow="""
        if not first or not second:
            return 0
        if first[0] == second[0]:
            return 1 + common_subsequence(first[1:], second[1:])
        return max(common_subsequence(first[1:], second), common_subsequence(first, second[1:]))
        """,
        large=(text("abcdefg", 60, 70), text("abcdefg", 60, 70)),
    ),
    ProblemPattern(
        "matches",
        10,
        "text: str, pattern: str -> bool",
        "Return whether pattern matches all of text: '.' stands for any one letter, and '*' behind a letter or '.' for "
        "that any number of times, also none.",
        """
        if not pattern:
            return not text
        fits = bool(text) and pattern[0] in (text[0], '.')
        if len(pattern) > 1 and pattern[1] == '*':
            return matches(text, pattern[2:]) or (fits and matches(text[1:], pattern))
        return fits and matches(text[1:], pattern[1:])
        """,
        (
            text("ab", 0, 4),
            choice(("a*b*", ".*", "a.b", "ab*", ".b*a", "a*", "b*a.", ".*b", "a*a", "..", "a*.b*", "b.*", "ab", "")),
        ),
    ),
    ProblemPattern(
        "calculate",
        10,
        "text: str -> int",
        "Evaluate an expression of whole numbers, '+', '-', '*' and round brackets, without spaces; '*' binds more "
        "strongly than the others, and equals are worked out from the left. For example '2+3*(4-1)' is 11.",
        """
        def total(place):
            value, place = product(place)
            while place < len(text) and text[place] in '+-':
                other, end = product(place + 1)
                value = value + other if text[place] == '+' else value - other
                place = end
            return value, place

        def product(place):
            value, place = atom(place)
            while place < len(text) and text[place] == '*':
                other, place = atom(place + 1)
                value *= other
            return value, place

        def atom(place):
            if text[place] == '(':
                value, place = total(place + 1)
                return value, place + 1
            value = 0
            while place < len(text) and text[place].isdigit():
                value = value * 10 + int(text[place])
                place += 1
            return value, place

        return total(0)[0]
        """,
        (
            choice(
                (
                    "2+3*(4-1)",
                    "7",
                    "12-5-4",
                    "2*3*4",
                    "(1+2)*(3+4)",
                    "10-(2-7)",
                    "3*(2+(4-1)*5)",
                    "8-2*3",
                    "((5))",
                    "6+14*2-9",
                    "9-(3-(2-8))",
                    "2*(3+4)*5",
                    "100-99+1",
                    "4*4-4*3",
                    "(7-9)*6",
                    "1+2+3*4+5",
                    "20*(1-3)",
                    "5-6*7+8",
                    "(2+3)*4-1",
                    "31-(4+1)*5",
                    "0*9+3",
                    "2-(3*4-5)*6",
                    "11*11-1",
                    "9-8-7-6",
                    "(9-1)*(9-2)",
                )
            ),
        ),
    ),
    ProblemPattern(
        "palindrome_cuts",
        10,
        "text: str -> int",
        "Return the smallest number of cuts that divide text, which is not empty, into pieces each of which reads the "
        "same from the left and from the right.",
        """
        cuts = [-1]
        for end in range(1, len(text) + 1):
            options = []
            for start in range(end):
                piece = text[start:end]
                if piece == piece[::-1]:
                    options.append(cuts[start] + 1)
            cuts.append(min(options))
        return cuts[-1]
        """,
        (text("abc", 1, 8),),
    ),
    ProblemPattern(
        "compare_versions",
        6,
        "first: str, second: str -> int",
        "Both are version numbers such as '1.10.2'. Return -1 if the first is older, 1 if it is newer and 0 if they "
        "are equal; parts that are missing count as 0.",
        """
        left = [int(part) for part in first.split('.')]
        right = [int(part) for part in second.split('.')]
        size = max(len(left), len(right))
        left += [0] * (size - len(left))
        right += [0] * (size - len(right))
        if left == right:
            return 0
        return -1 if left < right else 1
        """,
        (choice(("1.10.2", "1.2", "1.2.0", "2.0", "1.9.9", "0.1")), choice(("1.2", "1.2.0.0", "1.10", "2", "1.3.1"))),
    ),
)
