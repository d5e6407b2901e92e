"""`speck events`"""

from __future__ import annotations

import time

import click

from speck.cli.options import client, connected, formatted, names_of, output
from speck.model.values import JsonObject

_LOOK_EVERY_S = 1.0


@click.command()
@click.argument("composition", required=False, shell_complete=names_of("compositions"))
@click.option("--site", shell_complete=names_of("sites"), help="Only events of this site.")
@click.option("--job", shell_complete=names_of("jobs"), help="Only events of this job.")
@click.option("--change", help="Only events of this change.")
@click.option("--kind", help="Only events of this kind, like operation, site or drift.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events above this id.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=100, help="So many newest events (100)."
)
@click.option("-f", "--follow", is_flag=True, help="Go on as events happen, until Ctrl-C.")
@connected
@formatted
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
    """Print what happened, oldest first.

    With COMPOSITION only what concerns that.

    With `-o json` and `-f` each event is one line of JSON.
    """
    from speck.cli.names import check_known
    from speck.client import NoServerError

    service = client()
    about = {
        "composition": composition,
        "site": site,
        "job_name": job,
        "change": change,
        "kind": kind,
    }
    found = service.events(after, **about)
    if not found and not after:  # of what is gone there may be events still
        check_known(service, composition=composition, site=site, job=job)
    shown = found[-lines:] if lines else []
    if not follow:
        output().show({"events": shown}, *map(_line, shown))
        return
    _print(shown)
    last = found[-1]["id"] if found else after
    while True:
        time.sleep(_LOOK_EVERY_S)
        try:
            found = service.events(last, **about)
        except NoServerError:
            continue  # it may be restarting; whoever follows ends it with Ctrl-C
        _print(found)
        last = found[-1]["id"] if found else last


def _print(events: list[JsonObject]) -> None:
    import json

    for event in events:
        click.echo(_line(event) if output().table else json.dumps(event, ensure_ascii=False))


def _line(event: JsonObject) -> str:
    from speck.cli.messages import clean
    from speck.cli.output import moment

    return f"{moment(event['at'])}  {event['kind']:8}  {clean(event['message'])}"
