"""TaskFolders: task folders as Terminal-Bench and Harbor have them, played in the sandbox."""

from loomrl.envs.tasks.environment import TaskFolders

__all__ = ["TaskFolders"]
