"""The option --policy, and what its values mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from speck.placement.names import DEFAULT_POLICY, IDEAS

F = TypeVar("F", bound=Callable[..., Any])

EPILOG = "\n".join(
    (
        "\b",
        "Policies (docs/placement.md has more about each):",
        *(f"  {name:<13} {idea}" for name, idea in IDEAS.items()),
        "The service may know others, such as those of research. All of them leave out moves that",
        "save less than they cost.",
    )
)
"""The end of a command's --help. After \\b click leaves the lines as they are."""


class PolicyName(click.ParamType):  # type: ignore[type-arg]  # generic in new releases only
    """The name of a policy. The service, which may know more of them than the machine of the
    command, refuses an unknown one with all names."""

    name = "name"

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in IDEAS if name.startswith(incomplete)]


def add_policy_option(command: F) -> F:
    """Add --policy, passed as `policy`."""
    return click.option(
        "--policy",
        type=PolicyName(),
        default=DEFAULT_POLICY,
        show_default=True,
        help="The placement policy; see below.",
    )(command)
