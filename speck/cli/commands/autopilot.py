"""`speck autopilot`"""

from __future__ import annotations

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import client, connected, formatted, names_of, output
from speck.model.values import JsonObject

_COMPOSITION = click.argument("composition", shell_complete=names_of("compositions"))
_SETTINGS = ("every_s", "min_gain", "policy", "settle_s", "looks")
_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.group(cls=HelpfulGroup)
def autopilot() -> None:
    """Place jobs without being asked.

    Off by default. It has a composition analysed on a schedule and carries out a placement when
    several analyses in a row advise the same, it saves enough or mends a requirement, and all is
    quiet.
    """


@autopilot.command("on")
@_COMPOSITION
@click.option("--every", type=_POSITIVE, help="Seconds between analyses (at first 300).")
@click.option(
    "--min-gain",
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of the bytes between sites that a move must save (at first 0.2).",
)
@click.option("--policy", help="How sites are chosen (at first milp).")
@click.option("--settle", type=_POSITIVE, help="Seconds of quiet after any change (at first 600).")
@click.option(
    "--looks",
    type=click.IntRange(1, 100),
    help="How many analyses in a row must say the same (at first 2).",
)
@connected
@formatted
def switch_on(
    composition: str,
    every: float | None,
    min_gain: float | None,
    policy: str | None,
    settle: float | None,
    looks: int | None,
) -> None:
    """Switch it on for COMPOSITION; what is not given stays as it was set before."""
    given = dict(zip(_SETTINGS, (every, min_gain, policy, settle, looks), strict=True))
    _set(composition, on=True, **{name: it for name, it in given.items() if it is not None})


@autopilot.command("off")
@_COMPOSITION
@connected
@formatted
def switch_off(composition: str) -> None:
    """Switch it off for COMPOSITION; what runs, and its settings, stay as they are."""
    _set(composition, on=False)


@autopilot.command()
@_COMPOSITION
@connected
@formatted
def status(composition: str) -> None:
    """Show its settings and what it said last."""
    _show(client().autopilot(composition))


@autopilot.command()
@_COMPOSITION
@connected
@formatted
def log(composition: str) -> None:
    """List what it did and did not do, and why."""
    from speck.cli.output import Grid, moment

    entries = client().autopilot(composition)["log"]
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


def _set(composition: str, **given: object) -> None:
    """PUT takes all settings: those that are not `given` are asked for."""
    before = client().autopilot(composition)
    settings = {name: before[name] for name in _SETTINGS} | given
    _show(client().set_autopilot(composition, settings))


def _show(found: JsonObject) -> None:
    from speck.cli.output import fields, moment

    last = found["log"][-1] if found["log"] else None
    told = [
        ("autopilot", "on" if found["on"] else "off"),
        *((name, found[name]) for name in ("policy", "every_s", "min_gain", "settle_s", "looks")),
        ("analysis", found["analysis"]),
        ("next", moment(found["next"]) if found["next"] else None),
        ("last", f"{moment(last['at'])} {last['message']}" if last else None),
    ]
    output().show(found, fields(told))
