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
    from loomrl.gym.check.run import check_environment as check_environment
    from loomrl.gym.policy import Action as Action
    from loomrl.gym.pool import LoomRLGym as LoomRLGym
    from loomrl.types import Message as Message
    from loomrl.types import Reward as Reward
    from loomrl.types import Task as Task

_HOME = {
    "Action": "loomrl.gym.policy",
    "BaseEnvironment": "loomrl.gym.base",
    "EnvironmentSettings": "loomrl.gym.base",
    "EnvironmentType": "loomrl.gym.catalogue",
    "LoomRLGym": "loomrl.gym.pool",
    "Message": "loomrl.types",
    "Reward": "loomrl.types",
    "Step": "loomrl.gym.base",
    "Task": "loomrl.types",
    "check_environment": "loomrl.gym.check.run",
    "make": "loomrl.gym.catalogue",
    "register_environment": "loomrl.gym.catalogue",
}
"""Public name → the module that defines it; imported on first use."""

__all__ = sorted(_HOME)
__getattr__, __dir__ = lazily("loomrl.gym", _HOME)

expose_announced()
