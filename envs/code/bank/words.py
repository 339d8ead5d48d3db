"""Problems about text."""

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
)
