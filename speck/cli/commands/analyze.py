"""`speck analyze`"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from speck.cli.options import client, connected, formatted, names_of, output

if TYPE_CHECKING:
    from speck.client import Client
    from speck.model.values import JsonObject

_POLL_S = 0.5
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(_: click.Context, param: click.Parameter, value: str) -> float:
    """`90`, `90s`, `10m`, `2h`, `1d` as seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", value)
    if found is None or float(found[1]) <= 0:
        raise click.BadParameter(f"{value!r} is no time: write 90s, 10m, 2h or 1d", param=param)
    return float(found[1]) * _UNITS[found[2]]


@click.command()
@click.argument("composition", required=False, shell_complete=names_of("compositions"))
@click.option(
    "--window", callback=_seconds, default="10m", metavar="TIME", help="How far back (10m)."
)
@click.option("--master", default="local[*]", metavar="URL", help="local[n] or spark://host:port.")
@click.option("--follow", is_flag=True, help="Print anew whenever there are new samples.")
@click.option(
    "--dataset",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Analyse this folder, without a service.",
)
@connected
@formatted
def analyze(
    composition: str | None, window: float, master: str, follow: bool, dataset: Path | None
) -> None:
    """Tell what jobs cost and give, and which should sit at edges.

    Of COMPOSITION, or of all jobs; from the samples that the collector keeps. Changes nothing:
    `speck place` proposes sites by what this has told.
    """
    if dataset is not None:
        _show(_directly(dataset, composition, window, master, follow))
        return
    service = client()
    asked = service.analyse(composition, window_s=window, master=master, follow=follow)
    if follow:
        _follow(service, asked["id"])
    else:
        _show(awaited(service, asked["id"]))


def _directly(
    dataset: Path, composition: str | None, window: float, master: str, follow: bool
) -> JsonObject:
    """Runs the application here and waits for it."""
    import json
    import subprocess
    import sys
    import tempfile

    from speck.errors import InvalidError, PermanentError

    if follow:
        raise InvalidError("cannot follow a folder: --follow needs the service")
    with tempfile.TemporaryDirectory(prefix="speck-analysis-") as folder:
        out = Path(folder) / "analysis.json"
        argv = [sys.executable, "-m", "speck.analyzer", "--dataset", str(dataset)]
        argv += ["--out", str(out), "--window", str(window), "--master", master]
        argv += ["--composition", composition] if composition else []
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = "\n" + done.stderr.strip()
            at = said.rfind("\ncannot ")
            ended = f"cannot analyse: the analyzer ended with status {done.returncode}"
            raise PermanentError(said[at + 1 :] if at >= 0 else ended)
        head = {"composition": composition, "state": "done", "master": master}
        told: JsonObject = json.loads(out.read_text())
        return head | told


def awaited(service: Client, analysis_id: str) -> JsonObject:
    """The analysis once it is done; ended with Ctrl-C. Raises PermanentError when it failed."""
    import time

    from speck.errors import PermanentError

    try:
        while (found := service.analysis(analysis_id))["state"] == "running":
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        service.cancel_analysis(analysis_id)
        raise
    if found["state"] != "done":
        raise PermanentError(found["error"] or f"cannot analyse: it was {found['state']}")
    return found


def _follow(service: Client, analysis_id: str) -> None:
    """Until Ctrl-C, which ends the analysis too."""
    import time

    from speck.errors import PermanentError

    seen = None
    try:
        while (found := service.analysis(analysis_id))["state"] == "running":
            if "window" in found and found["window"] != seen:
                seen = found["window"]
                _show(found)
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        service.cancel_analysis(analysis_id)
        raise
    raise PermanentError(found["error"] or f"cannot follow: the analysis was {found['state']}")


def _show(found: JsonObject) -> None:
    from speck.cli import analyses

    output().show(found, *analyses.render(found))
