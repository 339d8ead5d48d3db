"""Random openings proven to be won by the player to move, in which most moves lose the win."""

from functools import lru_cache
from itertools import count
from random import Random

from loomrl.envs.game.board import BOARDS
from loomrl.envs.game.judge import POSITIONS
from loomrl.envs.game.solver import WIN, Search, ordered, outcome
from loomrl.envs.game.spiel import State, open_state
from loomrl.errors import EpisodeError

DEEP = (1, 1, 2, 3, 5, 8, 12, 16, 24, 32)
"""Minimum positions of the proof, by level: 1 if a single move wins."""
SHARE = 0.4
"""Maximum share of legal moves that keep the win."""
HASTY = 2
"""Up to this level openings may have moves in them that let the other player win at once."""
PATIENCE = 8
"""After this many candidates the requirements are lowered."""
MOST = 2000


@lru_cache(maxsize=4096)
def find_opening(family: str, level: int, seed: int) -> tuple[int, ...]:
    """The actions that lead to the position in which the policy is to move. It may be either player."""
    rng = Random(f"opening {family} {level} {seed}")
    deep = DEEP[level - 1]
    share = SHARE
    for tried in count(1):
        state = _played(family, level, rng)
        if state is not None and _fits(state, deep, share):
            return tuple(state.history())
        if tried % PATIENCE == 0:
            deep = max(deep // 2, 1)
            share = min(share + 0.1, 1.0)
        if tried == MOST:
            raise EpisodeError(f"{family}, level {level}, seed {seed}: no won opening among {MOST}.")
    raise AssertionError


def _played(family: str, level: int, rng: Random) -> State | None:
    """A position after random moves; None where the game is over by then, or it is the other player's turn."""
    size = BOARDS[family].sizes[level - 1]
    careful = BOARDS[family].sudden and level > HASTY
    state = open_state(size.game)
    seat = rng.randrange(2)
    for _ in range(rng.randint(size.first, size.last)):
        actions = rng.sample(state.legal_actions(), len(state.legal_actions()))
        sound = (action for action in actions if not careful or _is_sound(state.child(action)))
        state.apply_action_with_legality_check(next(sound, actions[0]))
        if state.is_terminal():
            return None
    return state if state.current_player() == seat else None


def _is_sound(state: State) -> bool:
    """True if the game is not over, and the player to move cannot win at once."""
    if state.is_terminal():
        return False
    player = state.current_player()
    children = map(state.child, state.legal_actions())
    return not any(child.is_terminal() and outcome(child, player) == WIN for child in children)


def _fits(state: State, deep: int, share: float) -> bool:
    player = state.current_player()
    actions = ordered(state)
    proof = Search(str, player, WIN, POSITIONS).prove(state)
    if not proof.holds or proof.positions < deep or len(actions) < 2:
        return False
    search = Search(str, player, WIN, POSITIONS)
    return sum(search.prove(state.child(action)).holds is True for action in actions) <= max(1, share * len(actions))
