"""Environments under their Gymnasium names: `loomrl/<name>-v<major>`."""

import gymnasium


def expose(name: str, version: str) -> str:
    """Let `gymnasium.make` and `make_vec` open this environment, and return its id. Nothing of it is imported yet."""
    name_there = f"loomrl/{name}-v{version.partition('.')[0]}"
    if name_there not in gymnasium.registry:
        gymnasium.register(
            name_there,
            entry_point="loomrl.gym.facade:TextEnvironment",
            vector_entry_point="loomrl.gym.vector:TextVectorEnvironment",
            kwargs={"environment": name},
        )
    return name_there
