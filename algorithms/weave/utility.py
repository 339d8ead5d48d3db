"""What returns of several objectives are worth to whom: Chebyshev's utility, and what a step adds to it. Pure.

Axes: `_T` steps, `_N` environments, `_H` objectives.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def chebyshev(returns_H: Floats, preference_H: Floats, *, best_H: Floats, width_H: Floats, slope: float) -> Floats:
    """Minus the greatest weighted distance from the best known returns, and a little of the sum of all of them.

    Distances are in widths of the front. Leading axes may be any.
    """
    behind_H = preference_H * (best_H - returns_H) / width_H
    utility: Floats = -(behind_H.max(-1) + slope * behind_H.sum(-1))
    return utility


def gained(
    earned_TNH: Floats, preference_TNH: Floats, *, best_H: Floats, width_H: Floats, slope: float
) -> NDArray[np.float32]:
    """What every step adds to the utility of the returns up to then, `[T, N]`; `earned` has one step more.

    Over an episode it sums to the utility of its return, but for the constant that it begins with.
    """
    before, after = (
        chebyshev(earned, preference_TNH, best_H=best_H, width_H=width_H, slope=slope)
        for earned in (earned_TNH[:-1], earned_TNH[1:])
    )
    return (after - before).astype(np.float32)
