"""Observations: the outcomes of calls, by the arm that their unit was assigned to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The outcome of one unit in one metric.

    A unit is whoever was assigned as one: a user, a session, or a call without either. It has one observation of a
    metric, over its first calls: its calls share an arm, so they are not evidence of their own.
    """

    revision: int
    """Of the endpoint, when the unit was assigned: it tells the shares."""
    arm: str
    """The assigned arm, also where another one answered for it."""
    unit: int
    """A hash of the unit's name, 64 bits."""
    metric: str
    """`error`, `latency_s`, `violation`, `trip`, `reward`, `success`, `negative`, or one of the caller's."""
    value: float
    at: float
    """Unix time."""
    test: str = ""
    """The A/B test that assigned the unit; empty if the endpoint's shares did."""
