"""The utility of returns with several objectives: Chebyshev's, and its change per step. Pure functions.

Axes: `_T` steps, `_N` environments, `_H` objectives.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def chebyshev(returns_H: Floats, preference_H: Floats, *, best_H: Floats, width_H: Floats, slope: float) -> Floats:
    """Minus the greatest weighted distance from the best known returns, and a small share of their sum.

    Distances are in widths of the front. Leading axes may be any.
    """
    behind_H = preference_H * (best_H - returns_H) / width_H
    utility: Floats = -(behind_H.max(-1) + slope * behind_H.sum(-1))
    return utility


def utility_gain(
    earned_TNH: Floats, preference_TNH: Floats, *, best_H: Floats, width_H: Floats, slope: float
) -> NDArray[np.float32]:
    """Each step's change in the utility of the returns so far, `[T, N]`; `earned` has one step more.

    Over an episode it sums to the utility of its return, up to the initial constant.
    """
    before, after = (
        chebyshev(earned, preference_TNH, best_H=best_H, width_H=width_H, slope=slope)
        for earned in (earned_TNH[:-1], earned_TNH[1:])
    )
    return (after - before).astype(np.float32)
