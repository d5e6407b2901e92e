"""Groups of commands that are imported on demand, so that `speck --help` is quick."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from speck.errors import suggest


class HelpfulGroup(click.Group):
    """A group that suggests a similar command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        return ctx.fail(f"no command {name!r}; {suggest(name, self.list_commands(ctx))}")


class LazyGroup(HelpfulGroup):
    """A group of commands given as `name -> "module:attribute"`.

    These modules import nothing expensive at their top.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, str], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._lazy.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command
