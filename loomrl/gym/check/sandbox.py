"""The sandbox of an environment that runs the policy's programs, under attack."""

from loomrl.gym.check.probe import Probe
from loomrl.gym.check.report import Check

AT_ONCE = 16
"""Attacks between two progress reports."""


async def check_sandbox(probe: Probe) -> Check:
    """Every attack of the suite, or a share of them, is held by the sandbox that this machine has."""
    from loomrl.gym.sandbox import open_sandbox
    from loomrl.gym.sandbox.attack import Breach, survey
    from loomrl.gym.sandbox.proof import attacks_on

    sandbox = open_sandbox()
    attacks = attacks_on(sandbox.boxes)[:: round(1 / probe.share)]
    found: list[Breach] = []
    for first in range(0, len(attacks), AT_ONCE):
        probe.tell(f"attack {first + 1} of {len(attacks)}")
        found += await survey(sandbox, attacks[first : first + AT_ONCE])
    figures = {"attacks": len(attacks), "breaches": len(found)}
    detail = "; ".join(f"a program in it {breach.attack} ({breach.seen})" for breach in found[:4])
    return Check("sandbox", not found, detail or f"all {len(attacks)} attacks held", figures)
