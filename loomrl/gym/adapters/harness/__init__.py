"""Agents of others as environments: a process per attempt, its model calls answered by the policy."""

from loomrl.gym.adapters.harness.environment import Harness as Harness
from loomrl.gym.adapters.harness.task import Done as Done
