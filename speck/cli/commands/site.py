"""`speck site`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import client, confirmed, connected, formatted, names_of, output
from speck.model.values import JsonObject

_name = click.argument("name", shell_complete=names_of("sites"))


@click.group(cls=HelpfulGroup)
def site() -> None:
    """Register, show and check sites."""


@site.command()
@click.argument("name", required=False)
@click.option("-f", "--file", help="Body of a site, or a list of them (`-`: stdin).")
@click.option("--tier", type=click.Choice(["edge", "cloud"]), default="edge", show_default=True)
@click.option("--engine", metavar="URL", help="The engine's REST API, e.g. http://10.0.0.7:8081.")
@click.option("--engine-kind", default="flink", show_default=True)
@click.option("--broker", metavar="URL", help="The broker, e.g. tcp://10.0.0.7:1883.")
@click.option("--broker-kind", default="mqtt", show_default=True)
@click.option("--credentials", metavar="NAME", help="Name of the broker's credentials file.")
@click.option("--uplink-mbps", type=float, help="Bandwidth towards the other sites.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="May be repeated.")
@click.option("--replace", is_flag=True, help="Change a site of that name.")
@connected
@formatted
def add(name: str | None, file: str | None, replace: bool, **given: Any) -> None:
    """Register a site NAME by its addresses, or all sites of a file."""
    from speck.cli import tables
    from speck.cli.messages import say

    if (name is None) == (file is None):
        raise click.UsageError("give a NAME with --engine and --broker, or --file")
    bodies = [_described(name, **given)] if name is not None else _read(file or "")
    service = client()
    shown = []
    for body in bodies:
        with _options_named() if file is None else nullcontext():
            if replace:
                found, new = service.put_site(str(body.get("name", "")), body)
            else:
                found, new = service.add_site(body)
        say(f"site {found['name']} {'registered' if new else 'changed' if replace else 'is there'}")
        shown.append(found)
    output().show({"sites": shown}, tables.sites(shown))


_OPTIONS = {
    "name": "NAME",
    "spe.address": "--engine",
    "spe.kind": "--engine-kind",
    "broker.address": "--broker",
    "broker.kind": "--broker-kind",
    "broker.credentials": "--credentials",
    "uplink_mbps": "--uplink-mbps",
}
"""What stands in the body, by the option that gives it."""


@contextmanager
def _options_named() -> Iterator[None]:
    """A problem of the body is one of the option behind it."""
    from speck.client import ClientError
    from speck.errors import InvalidError, Problem

    try:
        yield
    except ClientError as error:
        problems = [
            Problem(_OPTIONS.get(p.path, p.path.replace("labels", "--label")), p.message)
            for p in error.problems
        ]
        if not problems:
            raise
        raise InvalidError("; ".join(map(str, problems))) from error


def _described(
    name: str,
    tier: str,
    engine: str | None,
    engine_kind: str,
    broker: str | None,
    broker_kind: str,
    credentials: str | None,
    uplink_mbps: float | None,
    labels: tuple[str, ...],
) -> JsonObject:
    if engine is None or broker is None:
        raise click.UsageError("give --engine and --broker")
    pairs = [label.partition("=") for label in labels]
    if not all(key and equals for key, equals, _ in pairs):
        raise click.UsageError("write a --label as KEY=VALUE")
    body: JsonObject = {
        "name": name,
        "tier": tier,
        "spe": {"kind": engine_kind, "address": engine},
        "broker": {"kind": broker_kind, "address": broker},
        "labels": {key: value for key, _, value in pairs},
    }
    if credentials is not None:
        body["broker"]["credentials"] = credentials
    if uplink_mbps is not None:
        body["uplink_mbps"] = uplink_mbps
    return body


def _read(file: str) -> list[JsonObject]:
    """The bodies in a file: one mapping, a list of them, or `sites: [...]`."""
    from speck.cli import documents
    from speck.errors import InvalidError
    from speck.spec.schema import load_document

    text = documents.read(file)
    data = load_document(text.content, text.content_type).data
    if isinstance(data, dict) and isinstance(data.get("sites"), list):
        data = data["sites"]
    bodies = data if isinstance(data, list) else [data]
    if not bodies or not all(isinstance(body, dict) for body in bodies):
        raise InvalidError(f"cannot read sites from {text.name}: write a site or a list of sites")
    return bodies


@site.command("list")
@click.option("--state", help="Only sites in this state, e.g. up or unreachable.")
@connected
@formatted
def list_sites(state: str | None) -> None:
    """List sites."""
    from speck.cli import tables

    found = client().sites(state=state)
    output().show({"sites": found}, tables.sites(found))


@site.command()
@_name
@connected
@formatted
def show(name: str) -> None:
    """Show a site."""
    from speck.cli.output import fields

    found = client().site(name)
    slots = found["slots"]
    output().show(
        found,
        fields(
            (
                ("name", found["name"]),
                ("tier", found["tier"]),
                ("state", found["state"]),
                ("engine", f"{found['spe']['kind']} {found['spe']['address']}"),
                ("engine version", found["engine_version"]),
                ("broker", f"{found['broker']['kind']} {found['broker']['address']}"),
                ("credentials", found["broker"].get("credentials")),
                (
                    "slots",
                    None if slots["total"] is None else f"{slots['free']} of {slots['total']} free",
                ),
                ("uplink Mbit/s", found.get("uplink_mbps")),
                ("last seen", found["last_seen"]),
                *_calibrated(found.get("calibration")),
                *_agent(found.get("agent") or {}),
                *((f"label {key}", value) for key, value in found.get("labels", {}).items()),
            )
        ),
    )


@site.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=names_of("sites"))
@click.option("--busy", is_flag=True, help="Also where jobs run: they get less CPU meanwhile.")
@click.option(
    "--jar",
    "job_path",
    metavar="JOB_PATH",
    help="Jar of the calibration job (else speck-jobs.jar in the service's folders of jars).",
)
@connected
@formatted
def calibrate(names: tuple[str, ...], busy: bool, job_path: str | None) -> None:
    """Measure how fast sites are (all by default), some 20 s each, one after another.

    Placement needs it: how many cores a site's engine may use, and how fast one is against
    the first cloud site's, which comes first.
    """
    from speck.cli.bars import count_bar
    from speck.cli.messages import say
    from speck.cli.output import Grid

    service = client()
    tiers = {found["name"]: found["tier"] for found in service.sites()}
    chosen = sorted(names or tiers, key=lambda name: (tiers.get(name) != "cloud", name))
    rows: list[JsonObject] = []
    with count_bar("calibrating sites", len(chosen)) as done:
        for name in chosen:
            rows.append(
                {"name": name, **service.calibrate_site(name, busy=busy, job_path=job_path)}
            )
            done(len(rows))
    # the pace of one that came first may have followed from a later one
    rows = [{"name": row["name"], **service.site(row["name"])["calibration"]} for row in rows]
    output().show(
        {"calibrations": rows},
        Grid(
            ("name", "cores", "pace", "at"),
            [(row["name"], row["cores"], row["pace"], row["at"]) for row in rows],
            None,
            "no sites",
        ),
    )
    held_up = [row["name"] for row in rows if row["detail"]["contended"]]
    if held_up:
        say(
            f"other programs took part of the CPU of {', '.join(held_up)} meanwhile: the cores are"
            " too low; calibrate again when it is quiet"
        )


def _calibrated(found: JsonObject | None) -> list[tuple[str, Any]]:
    """What its last calibration told; nothing before the first."""
    if found is None:
        return []
    return [
        ("cores", found["cores"]),
        ("pace of a core", found["pace"]),
        ("calibrated", found["at"]),
    ]


def _agent(report: JsonObject) -> list[tuple[str, Any]]:
    """What the site's agent told last."""
    free = report.get("free_bytes")
    rows = [
        ("state folder", report.get("state_folder")),
        ("free disk MB", free >> 20 if isinstance(free, int) else None),
        ("load", report.get("load")),
    ]
    return [row for row in rows if row[1] is not None]


@site.command()
@_name
@confirmed
@connected
def remove(name: str, yes: bool) -> None:
    """Forget a site; refused while jobs run there."""
    from speck.cli.messages import ask, say

    service = client()
    service.site(name)
    ask(f"Forget site {name}?", yes)
    service.remove_site(name)
    say(f"site {name} is removed")


@site.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=names_of("sites"))
@connected
@formatted
def check(names: tuple[str, ...]) -> None:
    """Look for settings that would lose data or starve jobs, of all sites by default.

    Exits with 1 when one of them is an error; a warning is none.
    """
    from speck.cli.messages import CommandFailed

    service = client()
    chosen = names or [found["name"] for found in service.sites()]
    checks = [service.check_site(name) for name in chosen]
    output().show({"checks": checks}, *map(_findings, checks))
    errors = {found["name"]: sum(map(_is_error, found["findings"])) for found in checks}
    bad = [f"{name}: {n} error{'' if n == 1 else 's'}" for name, n in errors.items() if n]
    if bad:
        raise CommandFailed("; ".join(bad))


def _is_error(finding: JsonObject) -> bool:
    return bool(finding["severity"] == "error")


def _findings(found: JsonObject) -> str:
    from speck.cli.messages import clean, style

    if not found["findings"]:
        return f"{found['name']}: fine"
    lines = [f"{found['name']}:"]
    for finding in sorted(found["findings"], key=lambda f: not _is_error(f)):
        mark = style(finding["severity"], fg="red" if _is_error(finding) else "yellow")
        what = f"{finding['part']} {finding['setting']}: {finding['found']}; {finding['why']}"
        mend = clean(finding["mend"]).replace("\n", "\n          ")
        lines += [f"  {mark}: {clean(what)}", f"    mend: {mend}"]
    return "\n".join(lines)
