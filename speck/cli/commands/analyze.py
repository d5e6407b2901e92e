"""`speck analyze`"""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import click

from speck.cli.durations import Duration
from speck.cli.options import add_service_options, client, output
from speck.cli.subjects import add_composition

if TYPE_CHECKING:
    from speck.model.values import JsonObject

_URI = re.compile(r"(file|s3a|hdfs):")


@click.command()
@add_composition(required=False)
@click.option(
    "--window",
    type=Duration("1s", "31d"),
    default="10m",
    show_default=True,
    help="How far to look back.",
)
@click.option(
    "--ahead",
    type=Duration("1m", "12h"),
    help="Also forecast the rates of links for so long, like 20m.",
)
@click.option(
    "--master",
    metavar="NAME|URL",
    help="One of the service's Spark masters; with --dataset any, like local[2].",
)
@click.option(
    "--dataset",
    metavar="FOLDER|URI",
    callback=lambda _context, _option, place: None if place is None else _check_dataset(place),
    help="Analyse this dataset (a folder, file:, s3a: or hdfs:), without a service.",
)
@add_service_options
def analyze(
    composition: str | None,
    window: float,
    ahead: float | None,
    master: str | None,
    dataset: str | None,
) -> None:
    """Show what jobs cost and save, and which belong at edges.

    Analyses the jobs of COMPOSITION, or all jobs, from the collector's samples. It changes nothing;
    `speck place` proposes sites from the result.
    """
    if dataset is not None:
        _show(_analyze_dataset(dataset, composition, window, ahead, master or "local[*]"))
        return
    from speck.cli.names import check_known
    from speck.cli.waiting import await_analysis
    from speck.client import ClientError

    service = client()
    try:
        head = service.analyse(composition, window_s=window, master=master, ahead_s=ahead)
    except ClientError as error:
        if error.status == HTTPStatus.NOT_FOUND:  # one that is gone may have samples
            check_known(service, composition=composition)
        raise
    _show(await_analysis(service, head["id"]))


def _check_dataset(place: str) -> str:
    """A dataset's URI, or its folder, which must exist."""
    if _URI.match(place) or Path(place).is_dir():
        return place
    raise click.BadParameter(
        f"there is no folder {place!r}; a URI begins with file:, s3a: or hdfs:"
    )


def _analyze_dataset(
    dataset: str,
    composition: str | None,
    window: float,
    ahead: float | None,
    master: str,
) -> JsonObject:
    """Run the analyzer on this machine and wait for it."""
    import json
    import sys
    import tempfile
    from datetime import UTC, datetime

    from speck.cli.offline import config_at

    with tempfile.TemporaryDirectory(prefix="speck-analysis-") as folder:
        out = Path(folder) / "analysis.json"
        argv = [sys.executable, "-m", "speck.analyzer", "--dataset", dataset]
        argv += ["--out", str(out), "--window", str(window), "--master", master]
        argv += ["--composition", composition] if composition else []
        argv += ["--ahead", str(ahead)] if ahead else []
        argv += [each for jar in config_at(None).spark_jars for each in ("--jars", str(jar))]
        started = datetime.now(UTC)
        _run_analyzer(argv)
        ended = datetime.now(UTC)
        times = {"started": started.isoformat(), "ended": ended.isoformat()}
        head = {"composition": composition, "state": "done", "master": master, "warm": False}
        analysis: JsonObject = json.loads(out.read_text())
        return head | times | analysis


def _run_analyzer(argv: list[str]) -> None:
    """Run the analyzer; print the steps that it reports. Raises PermanentError with its error."""
    import subprocess
    import tempfile

    from speck.analyzer.request import STEP
    from speck.cli.messages import say
    from speck.errors import PermanentError

    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(STEP):
                    say(line.removeprefix(STEP).strip())
            status = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
        if status == 0:
            return
        log.seek(0)
        text = "\n" + log.read().strip()
    at = text.rfind("\ncannot ")
    ended = f"cannot analyse: the analyzer ended with status {status}"
    raise PermanentError(text[at + 1 :] if at >= 0 else ended)


def _show(analysis: JsonObject) -> None:
    from speck.cli import analyses

    output().show(analysis, *analyses.render(analysis))
