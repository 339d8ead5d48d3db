"""The minecart of mo-gymnasium, whose numbers stay numbers and repeat themselves: importing this registers it."""

from typing import Any

import gymnasium
from mo_gymnasium.envs.minecart.minecart import Minecart as Original

ID = "LoomMinecart-v0"


class Minecart(Original):  # type: ignore[misc,unused-ignore]
    """The same in everything, but for a full cart and for its chance.

    By rounding a cart can be fuller than full. The original then divides by what is mined, and if that is nothing,
    its content is no number any more. A policy that goes on mining comes to that, sooner or later. And it
    draws what is mined from a generator that no seed reaches.
    """

    cart: Any
    mines: list[Any]
    capacity: float

    def reset(self, seed: int | None = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; with this seed as every other time."""
        begun: tuple[Any, dict[str, Any]] = super().reset(seed=seed, **kwargs)  # type: ignore[no-untyped-call,unused-ignore]
        for mine in self.mines:
            for ore in mine.distributions:
                ore.random_state = self.np_random
        return begun

    def mine(self) -> bool:
        """True if anything was mined: nothing if there is no room."""
        return self.cart.content.sum() < self.capacity and bool(super().mine())  # type: ignore[no-untyped-call,unused-ignore]


gymnasium.register(ID, entry_point="loomrl.envs.minecart:Minecart", max_episode_steps=1000)
