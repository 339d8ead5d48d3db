"""ToolCall: requests that are fulfilled by calling functions, judged by the state they leave."""

from loomrl.envs.tool.environment import ToolCallEnvironment

__all__ = ["ToolCallEnvironment"]
