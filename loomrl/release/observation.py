"""Observations: the outcomes of calls, by the arm that their unit was assigned to."""

from loomrl.store.observations import Observation as Observation
