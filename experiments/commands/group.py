"""Groups of commands in which `loomrl NAME WORD…` runs a command of its own unless WORD names one of the others."""

from typing import Any

from typer.core import TyperGroup

DEFAULT = "run"
"""Name of the command that runs where none is named."""


class DefaultGroup(TyperGroup):
    """A group whose command `run` need not be named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the default command, unless another one or help is asked for."""
        if not args:
            args = [] if self.no_args_is_help else [DEFAULT]
        elif args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)
