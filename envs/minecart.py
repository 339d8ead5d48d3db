"""The minecart of mo-gymnasium, whose numbers stay numbers. Importing this lets Gymnasium know `LoomMinecart-v0`."""

from typing import Any

import gymnasium
from mo_gymnasium.envs.minecart.minecart import Minecart as Original

ID = "LoomMinecart-v0"


class Minecart(Original):  # type: ignore[misc,unused-ignore]
    """The same in everything, but for a full cart.

    By rounding a cart can be fuller than full. The original then divides by what is mined, and if that is nothing,
    its content is no number any more. A policy that goes on mining comes to that, sooner or later.
    """

    cart: Any
    capacity: float

    def mine(self) -> bool:
        """Whether anything was mined: nothing, where there is no room."""
        return self.cart.content.sum() < self.capacity and bool(super().mine())  # type: ignore[no-untyped-call,unused-ignore]


gymnasium.register(ID, entry_point="envs.minecart:Minecart", max_episode_steps=1000)
