"""The safe data sets of reasoning-gym as families of one environment. Needs the extra `reasoning-gym`.

Of its 106 data sets only those in `ALLOWED` are offered; `REFUSED` gives the reason for each of the others. Success is
the data set's full score and nothing less: most of them give partial credit for any text that contains the answer.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any, ClassVar

from loomrl.gym.adapters.family import import_extra, reward_of
from loomrl.gym.answer import TaggedAnswer
from loomrl.gym.base import LEVELS
from loomrl.gym.question import QuestionEnvironment
from loomrl.threshold import reaches
from loomrl.types import Reward, Task

MAX_ANSWER = 16_000
PREFIX = "reasoning_gym."

REFUSED: Mapping[str, str] = {
    "takes 0.2 s or more, up to minutes, to make one task of a high level": "acre bf jugs sokoban zebra_puzzles",
    "one constant answer is right in more than a third of the tasks of some level": (
        "aiw circuit_logic coin_flip course_schedule game_of_life gcd largest_island letter_counting mahjong_puzzle "
        "polynomial_equations rotten_oranges self_reference shortest_path syllogism"
    ),
    "executes the answer while scoring it": (
        "binary_matrix countdown intermediate_integration n_queens polynomial_multiplication puzzle24 "
        "simple_integration spiral_matrix string_insertion"
    ),
    "has no reference answer, so that nothing shows that its tasks can be solved": (
        "boxnet graph_color propositional_logic rubiks_cube rush_hour"
    ),
    "cannot make some tasks of its own curriculum": "caesar_cipher modulo_grid survo tsumego word_ladder",
    "runs the programs of its data file to make tasks": "codeio",
    "gives full score for junk: any text, nan, a list of candidates, any number of the question": (
        "complex_arithmetic game_of_life_halting gsm_symbolic knights_knaves number_format"
    ),
    "a mixture of the other data sets, not one of its own": "composite",
    "makes other tasks in a process with another PYTHONHASHSEED": (
        "isomorphic_strings knight_swap list_functions ransom_note"
    ),
    "asks questions of more than 16,000 characters at high levels": "needle_haystack rotate_matrix",
}
"""Reason → the data sets that are refused for it. Measured on reasoning-gym 0.1.25."""
ALLOWED = """
ab advanced_geometry arc_1d arc_agi base_conversion basic_arithmetic binary_alternation bitwise_arithmetic
calendar_arithmetic chain_sum color_cube_rotation count_bits count_primes cryptarithm decimal_arithmetic
decimal_chain_sum dice emoji_mystery family_relationships figlet_font fraction_simplification futoshiki group_anagrams
kakurasu lcm leg_counting letter_jumble manipulate_matrix maze mini_sudoku number_filtering number_sequence
number_sorting palindrome_generation palindrome_partitioning path_star pool_matrix power_function prime_factorization
products quantum_lock rearc rectangle_count sentence_reordering simple_equations simple_geometry spell_backward
string_manipulation string_splitting string_synthesis sudoku time_intervals tower_of_hanoi word_sequence_reversal
word_sorting
"""
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
    families = tuple(PREFIX + name for name in ALLOWED.split())
    reward_range = (0.0, 1.0)
    guess_floor: ClassVar[Mapping[str, float]] = {PREFIX + name: floor for name, floor in GUESS_FLOOR.items()}
    dependencies = ("reasoning-gym",)
    sources = (__name__, "loomrl.gym.adapters.family", "loomrl.threshold")
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

    async def judge(self, submission: TaggedAnswer) -> Reward:
        """Full score or nothing."""
        return reward_of(float(self._is_right(submission.answer)))

    def _is_right(self, answer: str) -> bool:
        if len(answer) > MAX_ANSWER:
            return False
        try:
            # The libraries warn about hostile answers, and in the tests warnings are errors.
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


def _library() -> Any:
    return import_extra("ReasoningGym", "reasoning_gym.factory", "reasoning-gym")


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
