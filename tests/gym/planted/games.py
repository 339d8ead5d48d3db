"""Puzzles and games in text."""

import random
from functools import reduce
from itertools import product
from operator import xor
from typing import ClassVar

from loomrl.gym import EnvironmentSettings, Step
from tests.gym.planted.base import Commands, whole
from tests.gym.planted.language import WORDS


class Tiles(Commands):
    """A row of tiles to be sorted by swaps. Every tile that comes into its place is worth a tenth."""

    reward_parts = ("correctness", "progress")
    reward_range = (-1.0, 5.0)

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        size = 7 + level // 3
        self.row = list(range(1, size + 1))
        while self.placed() > 1:
            rng.shuffle(self.row)
        self.history: list[tuple[int, int]] = []
        return f"Sort the tiles. Commands: swap PLACE PLACE (from 1 on); undo.\nTiles: {self.tell()}"

    def tell(self) -> str:
        return " ".join(map(str, self.row))

    def placed(self) -> int:
        return sum(tile == place for place, tile in enumerate(self.row, 1))

    def swap(self, one: int, two: int) -> float:
        """Swap two places; the progress of it."""
        before = self.placed()
        self.row[one - 1], self.row[two - 1] = self.row[two - 1], self.row[one - 1]
        return 0.1 * (self.placed() - before)

    def act(self, verb: str, words: list[str]) -> Step:
        progress = 0.0
        places = [whole(word) for word in words]
        if verb == "undo" and not words and self.history:
            progress = self.undo()
        elif verb == "swap" and len(places) == 2 and all(place in self.row for place in places):
            self.history.append((int(words[0]), int(words[1])))
            progress = self.swap(*self.history[-1])
        if self.placed() == len(self.row):
            return Step.end(self.pay(1.0, correctness=1.0, progress=progress))
        return Step.say(f"Tiles: {self.tell()}", reward=self.pay(0.0, progress=progress))

    def undo(self) -> float:
        """Take the last swap back; the progress of it."""
        raise NotImplementedError

    def oracle(self) -> str:
        place = next(place for place, tile in enumerate(self.row, 1) if tile != place)
        return f"swap {place} {self.row.index(place) + 1}"

    def random_action(self, rng: random.Random) -> str:
        return "swap {} {}".format(*rng.sample(self.row, 2))


class Mosaic(Tiles):
    def undo(self) -> float:
        self.swap(*self.history.pop())
        return 0.0


class Parquet(Tiles):
    def undo(self) -> float:
        return self.swap(*self.history.pop())


class HangmanSettings(EnvironmentSettings):
    max_steps: int = 20


class Hangman(Commands):
    """A word, letter by letter, with a few misses."""

    settings_class = HangmanSettings

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        self.word = rng.choice(WORDS)
        self.most = 6 - level // 4
        self.guessed: set[str] = set()
        self.misses = 0
        self.turns = 0
        return f"Guess the word, one letter a turn. At {self.most} misses you have lost.\n{self.tell()}"

    def tell(self) -> str:
        return " ".join(letter if letter in self.guessed else "_" for letter in self.word)

    def is_complete(self) -> bool:
        return set(self.word) <= self.guessed

    def act(self, verb: str, words: list[str]) -> Step:
        self.turns += 1
        said = "One letter from a to z is needed."
        if len(verb) == 1 and "a" <= verb <= "z" and not words:
            self.misses += verb in self.guessed or verb not in self.word
            self.guessed.add(verb)
            said = f"{self.tell()}\nMisses: {self.misses}"
        if self.is_complete() or self.misses >= self.most or self.turns >= self.settings.max_steps:
            return self.end(float(self.is_won()))
        return Step.say(said)

    def is_won(self) -> bool:
        """The verdict at the end."""
        raise NotImplementedError

    def oracle(self) -> str:
        return next(letter for letter in self.word if letter not in self.guessed)

    def random_action(self, rng: random.Random) -> str:
        return rng.choice("abcdefghijklmnopqrstuvwxyz")

    def correct(self) -> float | None:
        return float(self.is_complete())


class Gallows(Hangman):
    def is_won(self) -> bool:
        return self.misses < self.most


class Snowman(Hangman):
    def is_won(self) -> bool:
        return self.is_complete()


class Cellar(Commands):
    """A treasure somewhere on a square of rooms; a compass shows the way, and digging elsewhere buries you."""

    steps: ClassVar[dict[str, tuple[int, int]]] = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        self.at = (0, 0)
        far = 2 + level
        self.treasure = (rng.choice((-1, 1)) * rng.randint(2, far), rng.choice((-1, 1)) * rng.randint(2, far))
        return "A treasure lies in one of these rooms. Commands: go DIRECTION, look, dig. You can dig once only."

    def way(self) -> list[str]:
        """The directions in which the treasure is."""
        dx, dy = self.treasure[0] - self.at[0], self.treasure[1] - self.at[1]
        return [name for name, (x, y) in self.steps.items() if x * dx > 0 or y * dy > 0]

    def do_go(self, words: list[str]) -> Step:
        x, y = self.steps.get(" ".join(words), (0, 0))
        self.at = (self.at[0] + x, self.at[1] + y)
        return Step.say("You go on." if x or y else "Go where? north, south, east or west.")

    def do_look(self, words: list[str]) -> Step:
        return Step.say(f"The needle points {' and '.join(self.way()) or 'down'}.")

    def do_dig(self, words: list[str]) -> Step:
        return self.end(0.0) if self.way() else self.do_win(words)

    def do_win(self, words: list[str]) -> Step:
        return self.end(1.0)

    def oracle(self) -> str:
        return f"go {self.way()[0]}" if self.way() else "dig"

    def random_action(self, rng: random.Random) -> str:
        return rng.choice([*(f"go {name}" for name in self.steps), "look", "dig"])


class Crypt(Cellar):
    def act(self, verb: str, words: list[str]) -> Step:
        do = getattr(self, f"do_{verb}", None)
        return do(words) if do else Step.say("The commands are: go DIRECTION, look, dig.")


class Vault(Cellar):
    def act(self, verb: str, words: list[str]) -> Step:
        known = {"go": self.do_go, "look": self.do_look, "dig": self.do_dig}
        return known[verb](words) if verb in known else Step.say("The commands are: go DIRECTION, look, dig.")


class Heaps(Commands):
    """Nim: who takes the last stone wins. The opponent makes no mistakes."""

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        self.heaps = [0]
        while not reduce(xor, self.heaps):
            self.heaps = [rng.randint(2, 4 + level) for _ in range(3 + level // 4)]
        return (
            f"Heaps of stones: {self.tell()}. We take turns: any number of stones from one heap. Who takes the last "
            "stone wins. Command: take COUNT HEAP, where heaps are numbered from 1 on. You begin."
        )

    def tell(self) -> str:
        return " ".join(map(str, self.heaps))

    def best(self) -> tuple[int, int]:
        """A winning move, or a single stone from the largest heap: the place of the heap, and how many stay."""
        total = reduce(xor, self.heaps)
        for place, stones in enumerate(self.heaps):
            if stones ^ total < stones:
                return place, stones ^ total
        place = self.heaps.index(max(self.heaps))
        return place, self.heaps[place] - 1

    def act(self, verb: str, words: list[str]) -> Step:
        count, heap = (whole(word) for word in words) if len(words) == 2 else (None, None)
        if verb != "take" or count is None or heap is None or not 1 <= heap <= len(self.heaps):
            return Step.say("The command is: take COUNT HEAP.")
        if not self.may_take(count, self.heaps[heap - 1]):
            return Step.say(f"That cannot be taken. Heaps: {self.tell()}")
        self.heaps[heap - 1] -= count
        if not any(self.heaps):
            return self.end(1.0)
        place, left = self.best()
        self.heaps[place] = left
        return Step.say(f"Heaps: {self.tell()}") if any(self.heaps) else self.end(0.0)

    def may_take(self, count: int, stones: int) -> bool:
        """True if so many stones can be taken from a heap."""
        raise NotImplementedError

    def oracle(self) -> str:
        place, left = self.best()
        return f"take {self.heaps[place] - left} {place + 1}"

    def random_action(self, rng: random.Random) -> str:
        heap = rng.choice([place for place, stones in enumerate(self.heaps, 1) if stones])
        return f"take {rng.randint(1, self.heaps[heap - 1])} {heap}"


class Pebbles(Heaps):
    def may_take(self, count: int, stones: int) -> bool:
        return 1 <= count <= stones


class Marbles(Heaps):
    def may_take(self, count: int, stones: int) -> bool:
        return count <= stones


class Lamps(Commands):
    """Lights out: a press changes a lamp and its neighbours, and all shall be dark."""

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        self.rng = rng
        self.level = level
        self.first = self.draw(2 + level)
        self.todo = set(self.first)
        return f"Switch all lamps off. Commands: press ROW COLUMN; restart.\n{self.tell()}"

    def draw(self, presses: int) -> list[tuple[int, int]]:
        """Presses that lead from darkness to a board, and back."""
        return self.rng.sample(list(product(range(1, 5), repeat=2)), presses)

    def is_lit(self, row: int, column: int) -> bool:
        return sum(abs(row - r) + abs(column - c) <= 1 for r, c in self.todo) % 2 == 1

    def tell(self) -> str:
        lamps = [["*" if self.is_lit(row, column) else "." for column in range(1, 5)] for row in range(1, 5)]
        return "\n".join(map("".join, lamps))

    def act(self, verb: str, words: list[str]) -> Step:
        numbers = [whole(word) or 0 for word in words]
        if verb == "press" and len(numbers) == 2 and all(1 <= number <= 4 for number in numbers):
            self.todo ^= {(numbers[0], numbers[1])}
        elif verb == "restart":
            self.todo = set(self.restart(numbers))
        else:
            return Step.say("The commands are: press ROW COLUMN, both from 1 to 4; restart.")
        return Step.say(self.tell()) if "*" in self.tell() else self.end(1.0)

    def restart(self, numbers: list[int]) -> list[tuple[int, int]]:
        """The presses of a new beginning."""
        raise NotImplementedError

    def oracle(self) -> str:
        return "press {} {}".format(*min(self.todo))

    def random_action(self, rng: random.Random) -> str:
        return f"press {rng.randint(1, 4)} {rng.randint(1, 4)}"


class Lanterns(Lamps):
    def restart(self, numbers: list[int]) -> list[tuple[int, int]]:
        presses = numbers[0] if numbers else self.level + 2
        return self.draw(min(max(presses, 0), 16))


class Candles(Lamps):
    def restart(self, numbers: list[int]) -> list[tuple[int, int]]:
        return self.first


class ThermometerSettings(EnvironmentSettings):
    max_steps: int = 12


class Thermometer(Commands):
    """A hidden temperature: every guess is told to be too warm or too cold."""

    settings_class = ThermometerSettings

    def begin(self, rng: random.Random, family: str, level: int) -> str:
        self.width = 150 * level
        self.hidden = rng.randint(1, self.width)
        return f"Which whole number from 1 to {self.width} do I think of? Guess with: guess NUMBER."

    def act(self, verb: str, words: list[str]) -> Step:
        number = whole(words[0]) if len(words) == 1 else None
        if verb != "guess" or number is None:
            return Step.say("The command is: guess NUMBER.")
        if number == self.hidden:
            return self.end(1.0)
        return Step.say("Too warm." if number > self.hidden else "Too cold.")

    def oracle(self) -> str:
        return f"guess {self.hidden}"

    def random_action(self, rng: random.Random) -> str:
        return f"guess {rng.randint(1, self.width)}"
