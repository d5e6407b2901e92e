"""The option --policy, and what its values mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from speck.placement.names import DEFAULT_POLICY, IDEAS, POLICY_NAMES

F = TypeVar("F", bound=Callable[..., Any])

EPILOG = "\n".join(
    (
        "\b",
        "Policies (docs/placement.md has more about each):",
        *(f"  {name:<13} {idea}" for name, idea in IDEAS.items()),
        "All of them leave out moves that save less than they cost.",
    )
)
"""The end of a command's --help. After \\b click leaves the lines as they are."""


def add_policy_option(command: F) -> F:
    """Add --policy, passed as `policy`."""
    return click.option(
        "--policy",
        type=click.Choice(POLICY_NAMES),
        metavar="NAME",
        default=DEFAULT_POLICY,
        show_default=True,
        help="The placement policy; see below.",
    )(command)
