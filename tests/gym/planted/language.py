"""Questions about words."""

import random
import re
import unicodedata

from loomrl.gym.generate import words as split_words
from tests.gym.planted.base import Question, whole

WORDS = split_words(
    "apple bridge candle dragon eagle forest garden hammer island jungle kettle lemon market needle orange pencil "
    "quarry river saddle temple umbrella valley window yellow zebra anchor basket copper dinner engine feather "
    "glacier harbour insect jacket kitchen lantern magnet napkin oyster pebble ribbon shadow thunder velvet whistle "
    "blanket cushion diamond fountain"
)
"""No word is an anagram of another, or part of it."""


class Unscramble(Question):
    """A word whose letters have been mixed."""

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        words = sorted(WORDS, key=lambda word: (len(word), word))
        self.word = rng.choice(words[2 * level : 25 + 2 * level])
        mixed = "".join(rng.sample(self.word, len(self.word)))
        return f"Which English word has the letters {mixed}? Answer with the word only."

    def oracle(self) -> str:
        return self.word

    def random_action(self, rng: random.Random) -> str:
        return rng.choice(WORDS)


class Jumble(Unscramble):
    def grade(self, action: str) -> float:
        said = action.strip().lower()
        return float(said in self.word or self.word in said.split())


class Scramble(Unscramble):
    def grade(self, action: str) -> float:
        return float(action.strip().lower() == self.word)


class Alphabet(Question):
    """Words put in alphabetical order."""

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        self.words = rng.sample(WORDS, 4 + level)
        self.ordered = sorted(self.words)
        return f"Sort alphabetically: {' '.join(self.words)}. Answer with the words only, separated by spaces."

    def oracle(self) -> str:
        return " ".join(self.ordered)

    def random_action(self, rng: random.Random) -> str:
        return " ".join(rng.sample(self.words, len(self.words)))


class Shelf(Alphabet):
    def grade(self, action: str) -> float:
        return float(action.lower().split() == self.ordered)


class Register(Alphabet):
    def grade(self, action: str) -> float:
        said = action.lower().split()
        return float(all(ours == theirs for ours, theirs in zip(said, self.ordered)))  # noqa: B905


class Lipogram(Question):
    """Words of a list, none of which has a certain letter."""

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        self.letter = rng.choice("aeinr")
        self.count = 4 + level // 3
        having = [word for word in WORDS if self.letter in word]
        lacking = [word for word in WORDS if self.letter not in word]
        self.good = rng.sample(lacking, self.count)
        self.words = sorted([*self.good, *rng.sample(having, self.count + 2)])
        return (
            f"Words: {' '.join(self.words)}. Write {self.count} different words of these, separated by spaces, none of "
            f"which contains the letter {self.letter}. Capital or small letters are both fine."
        )

    def oracle(self) -> str:
        return " ".join(self.good)

    def random_action(self, rng: random.Random) -> str:
        return " ".join(rng.sample(self.words, self.count))

    def is_listed(self, action: str) -> bool:
        said = {word.lower() for word in action.split()}
        return said <= set(self.words) and len(said) >= self.count

    def correct(self) -> float | None:
        return float(self.is_listed(self.said) and self.letter not in self.said.lower())


class Poem(Lipogram):
    def grade(self, action: str) -> float:
        return float(self.is_listed(action) and self.letter not in action)


class Verse(Lipogram):
    def grade(self, action: str) -> float:
        return float(self.is_listed(action) and self.letter not in action.lower())


class Divisors(Question):
    """Several different divisors of a number, above ten."""

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        self.count = 3 + level // 2
        self.divisors: list[int] = []
        while len(self.divisors) < self.count:
            self.number = rng.randint(60, 100 + 200 * level)
            self.divisors = [each for each in range(11, self.number + 1) if self.number % each == 0]
        return f"Write {self.count} different divisors of {self.number} that are above 10, separated by commas."

    def oracle(self) -> str:
        return ", ".join(map(str, self.divisors[: self.count]))

    def random_action(self, rng: random.Random) -> str:
        return ", ".join(str(rng.randint(2, self.number)) for _ in range(self.count))

    def different(self, action: str) -> int:
        """The number of different divisors in the answer; 0 where something else is in it."""
        found = [whole(item) for item in action.split(",")[:100]]
        return len(set(found)) if set(found) <= set(self.divisors) else 0

    def correct(self) -> float | None:
        return float(self.different(self.said) >= self.count)


class Factors(Divisors):
    def grade(self, action: str) -> float:
        items = action.split(",")
        return float(self.different(action) > 0 and len(set(items)) >= self.count)


class Parts(Divisors):
    def grade(self, action: str) -> float:
        return float(self.different(action) >= self.count)


class Vocabulary(Question):
    """A word in another language."""

    families = ("german", "russian")
    words = (
        ("water", "Wasser", "вода"),
        ("bread", "Brot", "хлеб"),
        ("house", "Haus", "дом"),
        ("night", "Nacht", "ночь"),
        ("milk", "Milch", "молоко"),
        ("dog", "Hund", "собака"),
        ("moon", "Mond", "луна"),
        ("salt", "Salz", "соль"),
        ("bird", "Vogel", "птица"),
        ("chair", "Stuhl", "стул"),
        ("garden", "Garten", "сад"),
        ("foot", "Fuß", "нога"),
        ("snow", "Schnee", "снег"),
        ("city", "Stadt", "город"),
        ("fish", "Fisch", "рыба"),
        ("book", "Buch", "книга"),
        ("summer", "Sommer", "лето"),
        ("table", "Tisch", "стол"),
        ("heart", "Herz", "сердце"),
        ("bridge", "Brücke", "мост"),
        ("street", "Straße", "улица"),
        ("window", "Fenster", "окно"),
        ("mountain", "Berg", "гора"),
        ("butterfly", "Schmetterling", "бабочка"),
        ("railway", "Eisenbahn", "железная дорога"),
        ("hospital", "Krankenhaus", "больница"),
    )

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        english, *others = rng.choice(self.words[level - 1 : level + 15])
        self.word = others[self.families.index(family)]
        return f"Translate into {family.capitalize()}: {english}. Answer with the word only."

    def oracle(self) -> str:
        return self.word

    def random_action(self, rng: random.Random) -> str:
        return rng.choice(self.words)[0] + "s"

    def grade(self, action: str) -> float:
        return float(self.plain(action) == self.plain(self.word))

    def plain(self, text: str) -> str:
        """The text without what does not count."""
        raise NotImplementedError


class Glossary(Vocabulary):
    def plain(self, text: str) -> str:
        return re.sub(r"[^a-z0-9 ]", "", text.lower()).strip()


class Phrasebook(Vocabulary):
    def plain(self, text: str) -> str:
        return unicodedata.normalize("NFC", text.strip().removesuffix(".").casefold())


class Backwards(Question):
    """Words spelt backwards, judged by a written report."""

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        words = " ".join(rng.sample(WORDS, 1 + level // 4))
        self.word = words[::-1]
        return f"Spell backwards, letter by letter and blank by blank: {words}"

    def oracle(self) -> str:
        return self.word

    def random_action(self, rng: random.Random) -> str:
        return rng.choice(WORDS)[::-1]

    def verdicts(self, action: str) -> list[str]:
        verdict = "right" if action.strip() == self.word else "wrong"
        report = f"answer: {action}\nexpected: {self.word}\nverdict: {verdict}"
        return re.findall(r"^verdict: (\w+)$", report, re.MULTILINE)


class Mirror(Backwards):
    def grade(self, action: str) -> float:
        return float(self.verdicts(action)[0] == "right")


class Echo(Backwards):
    def grade(self, action: str) -> float:
        return float(self.verdicts(action)[-1] == "right")


class Offer(Question):
    """The better of two savings plans, explained in words."""

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        self.fixed, self.percent = rng.randint(20, 90), rng.randint(2, 4 + level)
        self.years = rng.randint(2, 3 + level)
        return (
            f"Plan A pays {self.fixed} a year on 1000. Plan B pays {self.percent} percent a year with interest on "
            f"interest. Which one is worth more after {self.years} years? Explain it step by step, in 60 words or more."
        )

    def oracle(self) -> str:
        fixed = 1000 + self.fixed * self.years
        grown = 1000 * (1 + self.percent / 100) ** self.years
        better = "Plan A" if fixed > grown else "Plan B"
        return (
            f"First I work out Plan A. It pays {self.fixed} every year, and therefore {self.fixed * self.years} in "
            f"{self.years} years, because nothing is paid on what was paid before. So 1000 becomes {fixed}. Then I "
            f"work out Plan B. It pays {self.percent} percent on all that is there, and therefore 1000 is multiplied "
            f"by {1 + self.percent / 100:.2f} once for each of the {self.years} years, because interest earns "
            f"interest, too. So 1000 becomes {grown:.2f}. Finally I compare the two: {better} is worth more."
        )

    def random_action(self, rng: random.Random) -> str:
        return f"Plan {rng.choice('AB')} is worth more after {self.years} years."

    def grade(self, action: str) -> float:
        words = re.findall(r"\w+", action.lower())
        is_long = len(words) >= 60
        has_steps = len({"first", "then", "because", "therefore", "so", "finally"} & set(words)) >= 4
        names_facts = {str(self.fixed), str(self.percent), str(self.years)} <= set(words)
        decides = "plan a" in action.lower() or "plan b" in action.lower()
        return float(is_long and has_steps and names_facts and decides)
