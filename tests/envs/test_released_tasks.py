"""A released version asks for the same and takes the same as right for ever."""

import hashlib

import pytest

from loomrl.gym.catalogue import make
from tests.needs import need

NEEDS = {"Code": "a sandbox", "Game": "Stockfish"}
RELEASED = {
    "Code": "ead61aa0d3ac0806", "Dialogue": "537bf78aeb27c711", "Game": "f438a6a16f73cdca",
    "Language": "6c02743e25d3006f", "LogicPuzzle": "42fffbede00b41d2", "Math": "dcd652c6dacc4c61",
    "MemoryBuffer": "d3feb936a98f96ae", "MetaReasoning": "55cc99bc4dc7d432", "Multimodal": "469fcb39e988a41d",
    "ToolCall": "4ff8f9ffb850e9f0",
}  # fmt: skip
"""What a version asks for and takes as right, at every level of every family, as a digest."""
UNPINNED = {"chess", "translation.date", "translation.number"}
"""Families of which a part comes from Stockfish, or from Babel's data."""


@pytest.mark.parametrize("name", RELEASED)
async def test_tasks_of_a_released_version_stay_as_they_are(name):
    if name in NEEDS:
        need(NEEDS[name])
    environment = make(name, {})
    told = []
    for family in sorted({*environment.families} - UNPINNED):
        for level in (1, 5, 10) if name in NEEDS else range(1, 11):
            messages = await environment.reset(environment.task(family, level, 7))
            told.append((family, level, [message.content for message in messages], environment.oracle()))
    await environment.close()
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
    assert digest == RELEASED[name], f"if it is meant, {name} {environment.version} needs a new version"
