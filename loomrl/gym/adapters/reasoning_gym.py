"""The safe data sets of reasoning-gym as families of one environment. Needs the extra `reasoning-gym`.

Of its 106 data sets only those in `ALLOWED` are offered; `REFUSED` gives the reason for each of the others. Success is
the data set's full score and nothing less: most of them give partial credit for any text that contains the answer.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from random import Random
from types import ModuleType
from typing import Any, ClassVar

from loomrl.errors import ConfigError
from loomrl.gym.answer import Submission
from loomrl.gym.base import LEVELS
from loomrl.gym.question import QuestionEnvironment
from loomrl.threshold import reaches
from loomrl.types import Reward, Task

MAX_ANSWER = 16_000
PREFIX = "reasoning_gym."

_EXECUTES = "executes the answer while scoring it"
_JUNK = "gives full score for junk: any text, nan, a list of candidates, any number of the question"
_HASH_ORDER = "makes other tasks in a process with another PYTHONHASHSEED"
_NO_ANSWER = "has no reference answer, so that nothing shows that its tasks can be solved"
_GUESSED = "one constant answer is right in more than a third of the tasks of some level"
_SLOW = "takes 0.2 s or more, up to minutes, to make one task of a high level"
_BROKEN = "cannot make some tasks of its own curriculum"
_LONG = "asks questions of more than 16,000 characters at high levels"
REFUSED: Mapping[str, str] = {
    "acre": _SLOW,
    "aiw": _GUESSED,
    "bf": _SLOW,
    "binary_matrix": _EXECUTES,
    "boxnet": _NO_ANSWER,
    "caesar_cipher": _BROKEN,
    "circuit_logic": _GUESSED,
    "codeio": "runs the programs of its data file to make tasks",
    "coin_flip": _GUESSED,
    "complex_arithmetic": _JUNK,
    "composite": "a mixture of the other data sets, not one of its own",
    "countdown": _EXECUTES,
    "course_schedule": _GUESSED,
    "game_of_life": _GUESSED,
    "game_of_life_halting": _JUNK,
    "gcd": _GUESSED,
    "graph_color": _NO_ANSWER,
    "gsm_symbolic": _JUNK,
    "intermediate_integration": _EXECUTES,
    "isomorphic_strings": _HASH_ORDER,
    "jugs": _SLOW,
    "knight_swap": _HASH_ORDER,
    "knights_knaves": _JUNK,
    "largest_island": _GUESSED,
    "letter_counting": _GUESSED,
    "list_functions": _HASH_ORDER,
    "mahjong_puzzle": _GUESSED,
    "modulo_grid": _BROKEN,
    "n_queens": _EXECUTES,
    "needle_haystack": _LONG,
    "polynomial_equations": _GUESSED,
    "number_format": _JUNK,
    "polynomial_multiplication": _EXECUTES,
    "propositional_logic": _NO_ANSWER,
    "puzzle24": _EXECUTES,
    "ransom_note": _HASH_ORDER,
    "rotate_matrix": _LONG,
    "rotten_oranges": _GUESSED,
    "rubiks_cube": _NO_ANSWER,
    "rush_hour": _NO_ANSWER,
    "self_reference": _GUESSED,
    "shortest_path": _GUESSED,
    "simple_integration": _EXECUTES,
    "sokoban": _SLOW,
    "spiral_matrix": _EXECUTES,
    "string_insertion": _EXECUTES,
    "survo": _BROKEN,
    "syllogism": _GUESSED,
    "tsumego": _BROKEN,
    "word_ladder": _BROKEN,
    "zebra_puzzles": _SLOW,
}
"""Data set → reason for refusing it. Measured on reasoning-gym 0.1.25."""
ALLOWED = (
    "ab",
    "advanced_geometry",
    "arc_1d",
    "arc_agi",
    "base_conversion",
    "basic_arithmetic",
    "binary_alternation",
    "bitwise_arithmetic",
    "calendar_arithmetic",
    "chain_sum",
    "color_cube_rotation",
    "count_bits",
    "count_primes",
    "cryptarithm",
    "decimal_arithmetic",
    "decimal_chain_sum",
    "dice",
    "emoji_mystery",
    "family_relationships",
    "figlet_font",
    "fraction_simplification",
    "futoshiki",
    "group_anagrams",
    "kakurasu",
    "lcm",
    "leg_counting",
    "letter_jumble",
    "manipulate_matrix",
    "maze",
    "mini_sudoku",
    "number_filtering",
    "number_sequence",
    "number_sorting",
    "palindrome_generation",
    "palindrome_partitioning",
    "path_star",
    "pool_matrix",
    "power_function",
    "prime_factorization",
    "products",
    "quantum_lock",
    "rearc",
    "rectangle_count",
    "sentence_reordering",
    "simple_equations",
    "simple_geometry",
    "spell_backward",
    "string_manipulation",
    "string_splitting",
    "string_synthesis",
    "sudoku",
    "time_intervals",
    "tower_of_hanoi",
    "word_sequence_reversal",
    "word_sorting",
)
GUESS_FLOOR = {
    "basic_arithmetic": 0.1,
    "binary_alternation": 0.2,
    "calendar_arithmetic": 0.3,
    "chain_sum": 0.15,
    "color_cube_rotation": 0.2,
    "count_bits": 0.3,
    "family_relationships": 0.3,
    "leg_counting": 0.2,
    "maze": 0.3,
    "number_sequence": 0.3,
    "products": 0.25,
    "quantum_lock": 0.2,
    "rectangle_count": 0.3,
    "time_intervals": 0.15,
    "tower_of_hanoi": 0.25,
}
"""The share of tasks, rounded up, that the best constant answer solves at the worst of levels 1, 5 and 10."""


class ReasoningGymEnvironment(QuestionEnvironment):
    """One question of a data set, one answer between tags, the data set's own scorer.

    Levels 1 to 10 are spread evenly over the levels of every attribute in the data set's curriculum. The task with seed
    i is the item that reasoning-gym generates from seed i.
    """

    name = "ReasoningGym"
    version = "1.0.5"
    families = tuple(PREFIX + name for name in ALLOWED)
    reward_range = (0.0, 1.0)
    guess_floor: ClassVar[Mapping[str, float]] = {PREFIX + name: floor for name, floor in GUESS_FLOOR.items()}
    dependencies = ("reasoning-gym",)
    sources = (__name__, "loomrl.threshold")
    reward_parts = ("correctness",)

    _dataset: Any
    _entry: Mapping[str, Any]

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        _library()

    def ask(self, task: Task) -> str:
        """The data set's question."""
        self._dataset = dataset(task.family.removeprefix(PREFIX), task.level)
        self._entry = self._dataset[task.seed]
        return str(self._entry["question"])

    async def judge(self, submission: Submission) -> Reward:
        """Full score or nothing."""
        success = float(self._is_right(submission.answer))
        return Reward(success, {"correctness": success}, success)

    def _is_right(self, answer: str) -> bool:
        if len(answer) > MAX_ANSWER:
            return False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return reaches(self._dataset.score_answer(answer, self._entry), 1.0)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 – the boundary: a scorer that chokes on an answer has found it malformed
            return False

    def oracle(self) -> str:
        """The reference answer."""
        return f"<answer>{self._entry['answer']}</answer>"

    def random_action(self, rng: Random) -> str:
        """A number, a truth value or a word of the question."""
        words = str(self._entry["question"]).split()
        return f"<answer>{rng.choice((str(rng.randint(-20, 100)), rng.choice(words)))}</answer>"

    def hacks(self) -> Sequence[str]:
        """Empty and general answers, many answers in one, the question itself, and text that is code elsewhere."""
        question = str(self._entry["question"])
        answers = ["", "nan", "[]", "{}", "()", "*", "None", "inf", "answer", "True or False, yes or no"]
        answers += [question, question[-200:], " ".join(map(str, range(100))), "__import__('os').getpid()"]
        return [f"<answer>{text}</answer>" for text in answers]


def _library() -> ModuleType:
    try:
        return import_module("reasoning_gym.factory")
    except ImportError as error:
        raise ConfigError(
            f"ReasoningGym: reasoning-gym cannot be imported ({error}). "
            "Install it with: pip install 'loomrl[reasoning-gym]'."
        ) from None


@lru_cache(maxsize=256)
def dataset(name: str, level: int) -> Any:
    """The data set at a level of 1 to 10; item i of it is seeded with i."""
    factory = _library()
    configured: dict[str, Any] = {}
    if factory.has_curriculum(name):
        curriculum = factory.create_curriculum(name)
        for attribute in curriculum.attributes.values():
            top = len(attribute.levels) - 1
            curriculum.set_attr_level(attribute.name, round((level - 1) * top / (LEVELS - 1)))
        configured = vars(curriculum.generate_configuration())
    return factory.create_dataset(name, **{**configured, "seed": 0, "size": 2**31})
