"""One rule for names that RLlib and we both use.

In `training` a name means our setting if we have one of that name, else RLlib's; a name in `by_rllib` is RLlib's even
there. In a dictionary (`update_from_dict`, Tune's parameters, RLlib's checkpoints) and as an attribute it is RLlib's.
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from typing_extensions import override

from loomrl.algorithms.control import translation


class NamedConfig(AlgorithmConfig):
    """An RLlib configuration whose algorithm has settings of ours."""

    by_rllib: ClassVar[frozenset[str]] = frozenset()
    """Settings of ours whose name has RLlib's meaning in `training` too."""

    @property
    def ours(self) -> Collection[str]:
        """The names of the algorithm's settings."""
        raise NotImplementedError

    def is_ours(self, name: str) -> bool:
        """True if `training` takes the name for a setting of ours."""
        return name in self.ours and name not in self.by_rllib

    def set_theirs(self, settings: Mapping[str, Any]) -> None:
        """Set RLlib's settings by their names in its `training`; those of a replay buffer are merged."""
        for name, value in settings.items():
            theirs = translation.ALIASES.get(name, name)
            setattr(self, theirs, getattr(self, theirs) | value if theirs == "replay_buffer_config" else value)

    @override
    def update_from_dict(self, config_dict: Mapping[str, Any]) -> Self:
        """RLlib's settings by its names. Those that are names of ours too never pass through `training`."""
        both = {name: value for name, value in config_dict.items() if name in self.ours}
        super().update_from_dict({name: value for name, value in config_dict.items() if name not in both})
        self.set_theirs(both)
        return self
