"""`speck autopilot`"""

from __future__ import annotations

import click

from speck.cli.durations import Duration, write_duration
from speck.cli.lazy import HelpfulGroup
from speck.cli.options import (
    Number,
    add_service_options,
    client,
    names_of,
    output,
)
from speck.cli.policies import EPILOG, PolicyName
from speck.model.values import JsonObject
from speck.placement.names import DEFAULT_POLICY

_COMPOSITION = click.argument("composition", shell_complete=names_of("compositions"))
_SETTINGS = ("every_s", "min_gain", "policy", "settle_s", "agreeing", "scale", "ahead_s")


@click.group(cls=HelpfulGroup)
def autopilot() -> None:
    """Place jobs automatically.

    Off by default. The autopilot analyses a composition on a schedule. It applies a placement when
    several consecutive analyses agree, when it saves enough or fixes a requirement, and when no
    other change is recent.
    """


@autopilot.command("on", epilog=EPILOG)
@_COMPOSITION
@click.option("--every", type=Duration(), help="Time between analyses (initially 5m).")
@click.option(
    "--min-gain",
    type=Number(0, 1, min_open=True),
    help="Share of the bytes between sites that a move must save (initially 0.2).",
)
@click.option(
    "--policy",
    type=PolicyName(),
    help=f"The placement policy (initially {DEFAULT_POLICY}); see below.",
)
@click.option("--settle", type=Duration(), help="Time to wait after any change (initially 10m).")
@click.option(
    "--agreeing",
    type=click.IntRange(1, 100),
    help="How many consecutive analyses must agree (initially 2).",
)
@click.option(
    "--ahead",
    type=Duration("0", "12h"),
    help="Plan for the rates forecast for so long (initially 0: those of today).",
)
@click.option("--scale/--no-scale", default=None, help="Whether to change parallelism, too.")
@add_service_options
def switch_on(
    composition: str,
    every: float | None,
    min_gain: float | None,
    policy: str | None,
    settle: float | None,
    agreeing: int | None,
    scale: bool | None,
    ahead: float | None,
) -> None:
    """Switch it on for COMPOSITION; options that are not given keep their values."""
    settings = dict(
        zip(_SETTINGS, (every, min_gain, policy, settle, agreeing, scale, ahead), strict=True)
    )
    _set(composition, on=True, **{name: it for name, it in settings.items() if it is not None})


@autopilot.command("off")
@_COMPOSITION
@add_service_options
def switch_off(composition: str) -> None:
    """Switch it off for COMPOSITION; jobs and settings stay as they are."""
    _set(composition, on=False)


@autopilot.command()
@_COMPOSITION
@add_service_options
def status(composition: str) -> None:
    """Show its settings and its last log entry."""
    _show(_read(composition))


@autopilot.command()
@_COMPOSITION
@add_service_options
def log(composition: str) -> None:
    """List what it did or did not do, and why."""
    from speck.cli.output import Grid, moment

    entries = _read(composition)["log"]
    output().show(
        {"log": entries},
        Grid(
            ("at", "what", "why", "placement", "change"),
            [
                (
                    moment(entry["at"]),
                    entry["kind"],
                    entry["message"],
                    entry.get("placement"),
                    entry.get("change"),
                )
                for entry in entries
            ],
            empty="nothing yet",
        ),
    )


def _read(composition: str) -> JsonObject:
    """The settings and the log. Raises NotFoundError for an unknown composition."""
    from speck.cli.names import check_known

    service = client()
    check_known(service, composition=composition)
    return service.autopilot(composition)


def _set(composition: str, **changes: object) -> None:
    """Change some settings; PUT takes all of them, so the others are read first."""
    current = _read(composition)
    settings = {name: current[name] for name in _SETTINGS} | changes
    _show(client().set_autopilot(composition, settings))


def _show(state: JsonObject) -> None:
    from speck.cli.output import fields, moment

    last = state["log"][-1] if state["log"] else None
    rows = [
        ("autopilot", "on" if state["on"] else "off"),
        ("analyses every", write_duration(state["every_s"])),
        ("least saving", f"{state['min_gain']:.0%} of the bytes between sites"),
        ("policy", state["policy"]),
        ("waits after a change", write_duration(state["settle_s"])),
        ("acts when", _count_agreeing(state["agreeing"])),
        ("scales jobs", state["scale"]),
        ("plans ahead", write_duration(state["ahead_s"]) if state["ahead_s"] else "no"),
        ("analysis", state["analysis"]),
        ("next", moment(state["next"]) if state["next"] else None),
        ("last", f"{moment(last['at'])} {last['message']}" if last else None),
    ]
    output().show(state, fields(rows))


def _count_agreeing(number: int) -> str:
    return "one analysis says so" if number == 1 else f"{number} analyses in a row agree"
