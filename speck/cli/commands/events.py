"""`speck events`"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from speck.cli.options import add_service_options, client, names_of, output
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.client import Client

_POLL_INTERVAL_S = 1.0


@click.command()
@click.argument("composition", required=False, shell_complete=names_of("compositions"))
@click.option("--site", shell_complete=names_of("sites"), help="Only events of this site.")
@click.option("--job", shell_complete=names_of("jobs"), help="Only events of this job.")
@click.option("--change", help="Only events of this change.")
@click.option("--kind", help="Only events of this kind, like operation, site or drift.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events above this id.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=100, help="Number of newest events (100)."
)
@click.option("-f", "--follow", is_flag=True, help="Print new events until Ctrl-C.")
@add_service_options
def events(
    composition: str | None,
    site: str | None,
    job: str | None,
    change: str | None,
    kind: str | None,
    after: int,
    lines: int,
    follow: bool,
) -> None:
    """Print events, oldest first.

    With COMPOSITION, only events about it.

    With `-o json` and `-f`, each event is one line of JSON.
    """
    from speck.cli.names import check_known
    from speck.client import NoServerError

    service = client()
    filters = {
        "composition": composition,
        "site": site,
        "job_name": job,
        "change": change,
        "kind": kind,
    }
    page = service.events(after, **filters)
    if not page and not after:  # there may still be events about what is removed
        check_known(service, composition=composition, site=site, job=job)
        _warn_of_unknown_kind(service, kind)
    newest = page[-lines:] if lines else []
    if not follow:
        output().show({"events": newest}, *map(_line, newest))
        return
    _print(newest)
    last = page[-1]["id"] if page else after
    while True:
        time.sleep(_POLL_INTERVAL_S)
        try:
            page = service.events(last, **filters)
        except NoServerError:
            continue  # it may be restarting; the user can stop with Ctrl-C
        _print(page)
        last = page[-1]["id"] if page else last


def _warn_of_unknown_kind(service: Client, kind: str | None) -> None:
    """Say so when there is no event of a kind, but of others."""
    from speck.cli.messages import warn
    from speck.errors import suggest

    kinds = {event["kind"] for event in service.events()} if kind else set()
    if kind and kinds and kind not in kinds:
        warn(f"no event is of kind {kind!r}; {suggest(kind, kinds)}")


def _print(events: list[JsonObject]) -> None:
    from speck.cli.messages import to_json

    for event in events:
        click.echo(_line(event) if output().table else to_json(event))


def _line(event: JsonObject) -> str:
    from speck.cli.messages import clean
    from speck.cli.output import moment

    return f"{moment(event['at'])}  {event['kind']:8}  {clean(event['message'])}"
