"""Reward parts of one's own: `from loomrl.rewards import RewardComponent`."""

from loomrl.gym.rewards import RewardComponent as RewardComponent
