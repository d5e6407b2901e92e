"""`speck site`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import (
    Number,
    add_connection_options,
    add_fresh_option,
    add_service_options,
    add_yes_option,
    client,
    names_of,
    output,
)
from speck.cli.subjects import add_name
from speck.model.site import DEFAULT_BROKER, DEFAULT_ENGINE
from speck.model.values import JsonObject

_name = add_name("site")


@click.group(cls=HelpfulGroup)
def site() -> None:
    """Register, show and check sites."""


@site.command()
@click.argument("name", required=False)
@click.option("-f", "--file", help="File with a site or a list of sites (`-`: stdin).")
@click.option("--tier", type=click.Choice(["edge", "cloud"]), default="edge", show_default=True)
@click.option("--engine", metavar="URL", help="The engine's REST API, e.g. http://10.0.0.7:8081.")
@click.option("--engine-kind", metavar="KIND", help=f"Left out: {DEFAULT_ENGINE}.")
@click.option("--broker", metavar="URL", help="The broker, e.g. tcp://10.0.0.7:1883.")
@click.option("--broker-kind", metavar="KIND", help=f"Left out: {DEFAULT_BROKER}.")
@click.option("--credentials", metavar="NAME", help="Name of the broker's credentials file.")
@click.option("--engine-credentials", metavar="NAME", help="Name of the engine's credentials file.")
@click.option(
    "--beside",
    metavar="KIND",
    help="Another engine, reached through the site's agent: `process` for programs.",
)
@click.option(
    "--uplink-mbps", type=Number(min=0, min_open=True), help="Bandwidth to the other sites."
)
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="May be repeated.")
@click.option("--replace", is_flag=True, help="Replace a site of that name.")
@add_service_options
def add(name: str | None, file: str | None, replace: bool, **options: Any) -> None:
    """Register the site NAME with its addresses, or all sites of a file."""
    from speck.cli import tables
    from speck.cli.messages import say

    if (name is None) == (file is None):
        raise click.UsageError("give a NAME with --engine and --broker, or --file")
    bodies = [_build_body(name, **options)] if name is not None else _read_bodies(file or "")
    service = client()
    if replace and file is not None:  # together: they may exchange their addresses
        sites = service.put_sites(bodies)
        output().show({"sites": sites}, tables.sites(sites))
        return
    sites = []
    for body in bodies:
        with _name_options() if file is None else nullcontext():
            if replace:
                record, created = service.put_site(str(body.get("name", "")), body)
            else:
                record, created = service.add_site(body)
        outcome = "registered" if created else "changed" if replace else "was registered already"
        say(f"site {record['name']} {outcome}")
        sites.append(record)
    output().show({"sites": sites}, tables.sites(sites))


@site.command()
@click.argument("name", required=False, shell_complete=names_of("sites"))
@click.option("-f", "--file", help="File with a site or a list of sites (`-`: stdin).")
@click.option("--engine", metavar="URL", help="The engine's new address.")
@click.option("--broker", metavar="URL", help="The broker's new address.")
@click.option("--credentials", metavar="NAME", help="Name of the broker's credentials file.")
@click.option("--engine-credentials", metavar="NAME", help="Name of the engine's credentials file.")
@click.option(
    "--beside",
    metavar="KIND",
    help="Another engine, reached through the site's agent: `process` for programs.",
)
@click.option(
    "--uplink-mbps", type=Number(min=0, min_open=True), help="Bandwidth to the other sites."
)
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="Added or replaced.")
@click.option(
    "--new-broker",
    is_flag=True,
    help="Accept a broker without the site's sessions: they are made anew, and what waits at the"
    " old one is lost.",
)
@click.option(
    "--new-agent",
    is_flag=True,
    help="Accept an agent with another state folder: states in the old one are lost.",
)
@add_service_options
def update(
    name: str | None, file: str | None, new_broker: bool, new_agent: bool, **changes: Any
) -> None:
    """Change the site NAME, or all sites of a file together, while their jobs run.

    Jobs that have the address of a broker in their arguments are restarted with their state; no
    message is lost. Sites that exchange their addresses must stand in one file. What answers at a
    new address must be the site's own broker and engine. An address is best a host name: then it
    stays when the machine gets another IP address.
    """
    from speck.cli import tables
    from speck.cli.messages import say

    if (name is None) == (file is None):
        raise click.UsageError("give a NAME with what changes, or --file")
    given = [_flag(option) for option, value in changes.items() if value not in (None, ())]
    if file is not None and given:
        raise click.UsageError(f"{given[0]} changes the site NAME; write it into the file instead")
    if file is None and not (given or new_broker or new_agent):
        raise click.UsageError(f"give what changes: {', '.join(map(_flag, changes))}")
    service = client()
    if file is not None:
        bodies = _read_bodies(file)
        for body in bodies:
            service.site(str(body.get("name", "")))  # a mistyped name would be a new site
    else:
        bodies = [_change_body(service.site(name or ""), **changes)]
    with _name_options() if file is None else nullcontext():
        sites = service.put_sites(bodies, new_broker=new_broker, new_agent=new_agent)
    for record in sites:
        say(f"site {record['name']} changed")
    output().show({"sites": sites}, tables.sites(sites))


def _flag(option: str) -> str:
    return f"--{option.removesuffix('s') if option == 'labels' else option.replace('_', '-')}"


def _change_body(
    record: JsonObject,
    engine: str | None,
    broker: str | None,
    credentials: str | None,
    engine_credentials: str | None,
    beside: str | None,
    uplink_mbps: float | None,
    labels: tuple[str, ...],
) -> JsonObject:
    """The body of a site as it is, with what the options change."""
    kept = ("name", "tier", "spe", "broker", "uplink_mbps", "labels")
    body: JsonObject = {field: record[field] for field in kept if record.get(field) is not None}
    parts = (
        ("spe", {"address": engine, "credentials": engine_credentials, **_name_beside(beside)}),
        ("broker", {"address": broker, "credentials": credentials}),
    )
    for part, new in parts:
        merged = {**body[part], **{key: value for key, value in new.items() if value is not None}}
        body[part] = {key: value for key, value in merged.items() if value is not None}
    if uplink_mbps is not None:
        body["uplink_mbps"] = uplink_mbps
    body["labels"] = {**body.get("labels", {}), **_parse_labels(labels)}
    return body


_OPTIONS = {
    "name": "NAME",
    "spe.address": "--engine",
    "spe.kind": "--engine-kind",
    "broker.address": "--broker",
    "broker.kind": "--broker-kind",
    "broker.credentials": "--credentials",
    "spe.credentials": "--engine-credentials",
    "spe.beside.kind": "--beside",
    "spe.beside.address": "--beside",
    "uplink_mbps": "--uplink-mbps",
}
"""The fields of a body, with the options that set them."""


@contextmanager
def _name_options() -> Iterator[None]:
    """Report a problem in a body by the option that set the field."""
    from speck.client import ClientError
    from speck.errors import InvalidError, Problem

    try:
        yield
    except ClientError as error:
        problems = [
            Problem(
                _OPTIONS.get(p.path.removeprefix("sites[0]."), p.path.replace("labels", "--label")),
                p.message,
            )
            for p in error.problems
        ]
        if not problems:
            raise
        raise InvalidError("; ".join(map(str, problems))) from error


def _build_body(
    name: str,
    tier: str,
    engine: str | None,
    engine_kind: str | None,
    broker: str | None,
    broker_kind: str | None,
    credentials: str | None,
    engine_credentials: str | None,
    beside: str | None,
    uplink_mbps: float | None,
    labels: tuple[str, ...],
) -> JsonObject:
    if broker is None:
        raise click.UsageError("give --engine and --broker")
    body: JsonObject = {
        "name": name,
        "tier": tier,
        "spe": {
            **_leave_out_absent(engine_kind, engine, engine_credentials),
            **_name_beside(beside),
        },
        "broker": _leave_out_absent(broker_kind, broker, credentials),
        "labels": _parse_labels(labels),
    }
    if uplink_mbps is not None:
        body["uplink_mbps"] = uplink_mbps
    return body


def _name_beside(kind: str | None) -> JsonObject:
    return {} if kind is None else {"beside": {"kind": kind}}


def _leave_out_absent(
    kind: str | None, address: str | None, credentials: str | None
) -> dict[str, str]:
    given = {"kind": kind, "address": address, "credentials": credentials}
    return {name: value for name, value in given.items() if value is not None}


def _parse_labels(labels: tuple[str, ...]) -> dict[str, str]:
    pairs = [label.partition("=") for label in labels]
    if not all(key and equals for key, equals, _ in pairs):
        raise click.UsageError("write a --label as KEY=VALUE")
    if len({key for key, _, _ in pairs}) < len(pairs):
        raise click.UsageError("give each --label once")
    return {key: value for key, _, value in pairs}


def _read_bodies(file: str) -> list[JsonObject]:
    """Read the bodies in a file: one mapping, a list of them, or `sites: [...]`."""
    from speck.cli import documents
    from speck.errors import InvalidError
    from speck.spec.documents import load_document

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
@add_fresh_option
@add_service_options
def list_sites(state: str | None, fresh: bool) -> None:
    """List sites."""
    from speck.cli import tables

    records = client().sites(state=state, fresh=fresh)
    output().show({"sites": records}, tables.sites(records))


@site.command()
@_name
@add_fresh_option
@add_service_options
def show(name: str, fresh: bool) -> None:
    """Show a site."""
    from speck.cli.output import fields

    record = client().site(name, fresh=fresh)
    slots = record["slots"]
    output().show(
        record,
        fields(
            (
                ("name", record["name"]),
                ("tier", record["tier"]),
                ("state", record["state"]),
                ("polled at", record["polled_at"]),
                ("engine", f"{record['spe']['kind']} {record['spe'].get('address') or ''}".strip()),
                ("beside it", record["spe"].get("beside", {}).get("kind")),
                ("engine credentials", record["spe"].get("credentials")),
                ("engine version", record["engine_version"]),
                ("broker", f"{record['broker']['kind']} {record['broker']['address']}"),
                ("credentials", record["broker"].get("credentials")),
                (
                    "slots",
                    None if slots["total"] is None else f"{slots['free']} of {slots['total']} free",
                ),
                ("uplink Mbit/s", record.get("uplink_mbps")),
                ("last seen", record["last_seen"]),
                *_render_calibration(record.get("calibration")),
                *_render_agent(record.get("agent") or {}),
                *((f"label {key}", value) for key, value in record.get("labels", {}).items()),
            )
        ),
    )


@site.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=names_of("sites"))
@click.option(
    "--busy",
    is_flag=True,
    help="Also calibrate sites where jobs run; these get less CPU meanwhile.",
)
@click.option(
    "--jar",
    "job_path",
    metavar="JOB_PATH",
    help="File of the calibration job, if not the usual one of the site's engine.",
)
@add_service_options
def calibrate(names: tuple[str, ...], busy: bool, job_path: str | None) -> None:
    """Measure the speed of sites (all by default), one after another, about 20 s each.

    Placement needs to know how many cores a site's engine may use, and how fast a core is relative
    to that of the first cloud site, which is measured first.
    """
    from speck.cli.bars import count_bar
    from speck.cli.messages import say
    from speck.cli.output import Grid

    service = client()
    tiers = {record["name"]: record["tier"] for record in service.sites()}
    selection = sorted(names or tiers, key=lambda name: (tiers.get(name) != "cloud", name))
    rows: list[JsonObject] = []
    with count_bar("calibrating sites", len(selection)) as done:
        for name in selection:
            rows.append(
                {"name": name, **service.calibrate_site(name, busy=busy, job_path=job_path)}
            )
            done(len(rows))
    # the relative speed of an early one may have been computed from a later one
    rows = [{"name": row["name"], **service.site(row["name"])["calibration"]} for row in rows]
    output().show(
        {"calibrations": rows},
        Grid(
            ("name", "cores", "core speed", "at"),
            [(row["name"], row["cores"], row["core_speed"], row["at"]) for row in rows],
            None,
            "no sites",
        ),
    )
    contended = [row["name"] for row in rows if row["detail"]["contended"]]
    if contended:
        say(
            f"other programs used CPU of {', '.join(contended)} meanwhile, so the measured cores"
            " are too low; calibrate again when these sites are idle"
        )


def _render_calibration(calibration: JsonObject | None) -> list[tuple[str, Any]]:
    """The results of the last calibration; none before the first."""
    if calibration is None:
        return []
    return [
        ("cores", calibration["cores"]),
        ("core speed", calibration["core_speed"]),
        ("calibrated", calibration["at"]),
    ]


def _render_agent(report: JsonObject) -> list[tuple[str, Any]]:
    """The last report of the site's agent."""
    rows = [
        ("state folder", report.get("state_folder")),
        ("free disk MB", _to_mb(report.get("free_bytes"))),
        ("memory MB", _to_mb(report.get("memory_bytes"))),
        ("memory available MB", _to_mb(report.get("memory_available_bytes"))),
        ("load", report.get("load")),
    ]
    return [row for row in rows if row[1] is not None]


def _to_mb(size: object) -> int | None:
    return size >> 20 if isinstance(size, int) else None


@site.command()
@_name
@add_yes_option
@add_connection_options
def remove(name: str, yes: bool) -> None:
    """Remove a site; refused while jobs run there."""
    from speck.cli.messages import ask, say

    service = client()
    service.site(name)
    ask(f"Remove site {name}?", yes)
    service.remove_site(name)
    say(f"site {name} is removed")


@site.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=names_of("sites"))
@add_service_options
def check(names: tuple[str, ...]) -> None:
    """Find settings that would lose data or starve jobs, at all sites by default.

    Exits with 1 when a finding is an error; warnings do not count.
    """
    from speck.cli.messages import CommandFailed

    service = client()
    selection = names or [record["name"] for record in service.sites()]
    checks = [service.check_site(name) for name in selection]
    output().show({"checks": checks}, *map(_render_check, checks))
    errors = {record["name"]: sum(map(_is_error, record["findings"])) for record in checks}
    bad = [f"{name}: {n} error{'' if n == 1 else 's'}" for name, n in errors.items() if n]
    if bad:
        raise CommandFailed("; ".join(bad))


_COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}


def _is_error(finding: JsonObject) -> bool:
    return bool(finding["severity"] == "error")


def _render_check(report: JsonObject) -> str:
    from speck.cli.messages import clean, style

    if not report["findings"]:
        return f"{report['name']}: fine"
    lines = [f"{report['name']}:"]
    for finding in sorted(report["findings"], key=lambda f: list(_COLOURS).index(f["severity"])):
        mark = style(finding["severity"], fg=_COLOURS[finding["severity"]])
        what = f"{finding['part']} {finding['setting']}: {finding['value']}; {finding['why']}"
        mend = clean(finding["mend"]).replace("\n", "\n          ")
        lines += [f"  {mark}: {clean(what)}", f"    mend: {mend}"]
    return "\n".join(lines)
