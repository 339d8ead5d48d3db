"""The environment SDK: tasks in, trajectories out. Importing it makes the environments known to Gymnasium."""

from typing import TYPE_CHECKING

from loomrl.gym.namespace import expose_announced
from loomrl.named import lazily

if TYPE_CHECKING:
    from loomrl.gym.base import BaseEnvironment as BaseEnvironment
    from loomrl.gym.base import EnvironmentSettings as EnvironmentSettings
    from loomrl.gym.base import Step as Step
    from loomrl.gym.catalogue import EnvironmentType as EnvironmentType
    from loomrl.gym.catalogue import make as make
    from loomrl.gym.catalogue import register_environment as register_environment
    from loomrl.gym.check.probe import Check as Check
    from loomrl.gym.check.probe import CheckReport as CheckReport
    from loomrl.gym.check.run import check_environment as check_environment
    from loomrl.gym.episode import Attempt as Attempt
    from loomrl.gym.episode import Plan as Plan
    from loomrl.gym.episode import plan_group as plan_group
    from loomrl.gym.episode import run_episode as run_episode
    from loomrl.gym.manual import CurriculumGenerator as CurriculumGenerator
    from loomrl.gym.memory import MemoryBank as MemoryBank
    from loomrl.gym.policy import Action as Action
    from loomrl.gym.policy import Policy as Policy
    from loomrl.gym.policy import open_policy as open_policy
    from loomrl.gym.pool import LoomRLGym as LoomRLGym
    from loomrl.gym.registry import Registry as Registry
    from loomrl.types import Message as Message
    from loomrl.types import Reward as Reward
    from loomrl.types import Task as Task

_HOME = {
    "BaseEnvironment": "loomrl.gym.base",
    "EnvironmentSettings": "loomrl.gym.base",
    "Step": "loomrl.gym.base",
    "EnvironmentType": "loomrl.gym.catalogue",
    "make": "loomrl.gym.catalogue",
    "register_environment": "loomrl.gym.catalogue",
    "check_environment": "loomrl.gym.check.run",
    "Check": "loomrl.gym.check.probe",
    "CheckReport": "loomrl.gym.check.probe",
    "Attempt": "loomrl.gym.episode",
    "run_episode": "loomrl.gym.episode",
    "CurriculumGenerator": "loomrl.gym.manual",
    "Plan": "loomrl.gym.episode",
    "plan_group": "loomrl.gym.episode",
    "MemoryBank": "loomrl.gym.memory",
    "Action": "loomrl.gym.policy",
    "Policy": "loomrl.gym.policy",
    "open_policy": "loomrl.gym.policy",
    "LoomRLGym": "loomrl.gym.pool",
    "Registry": "loomrl.gym.registry",
    "Message": "loomrl.types",
    "Reward": "loomrl.types",
    "Task": "loomrl.types",
}
"""Public name → the module that defines it; imported on first use."""

__all__ = sorted(_HOME)
__getattr__, __dir__ = lazily("loomrl.gym", _HOME)

expose_announced()
