"""`speck analyze`"""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import click

from speck.cli.durations import Duration
from speck.cli.options import add_connection_options, add_output_option, client, output
from speck.cli.subjects import add_composition

if TYPE_CHECKING:
    from speck.client import Client
    from speck.model.values import JsonObject

_URI = re.compile(r"(file|s3a|hdfs):")
_FOLLOW_S = 1.0


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
@click.option("--follow", is_flag=True, help="Repeat the analysis whenever there are new samples.")
@click.option(
    "--dataset",
    metavar="FOLDER|URI",
    callback=lambda _context, _option, place: None if place is None else _check_dataset(place),
    help="Analyse this dataset (a folder, file:, s3a: or hdfs:), without a service.",
)
@add_connection_options
@add_output_option
def analyze(
    composition: str | None,
    window: float,
    ahead: float | None,
    master: str | None,
    follow: bool,
    dataset: str | None,
) -> None:
    """Show what jobs cost and save, and which belong at edges.

    Analyses the jobs of COMPOSITION, or all jobs, from the collector's samples. It changes nothing;
    `speck place` proposes sites from the result.
    """
    if dataset is not None:
        _show(_analyze_dataset(dataset, composition, window, ahead, master or "local[*]", follow))
        return
    from speck.cli.names import check_known
    from speck.client import ClientError

    service = client()
    try:
        head = service.analyse(
            composition, window_s=window, follow=follow, master=master, ahead_s=ahead
        )
    except ClientError as error:
        if error.status == HTTPStatus.NOT_FOUND:  # one that is gone may have samples
            check_known(service, composition=composition)
        raise
    if follow:
        _follow(service, head["id"])
    else:
        from speck.cli.waiting import await_analysis

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
    follow: bool,
) -> JsonObject:
    """Run the analyzer on this machine and wait for it."""
    import json
    import sys
    import tempfile
    from datetime import UTC, datetime

    from speck.cli.offline import config_at
    from speck.errors import InvalidError

    if follow:
        raise InvalidError("cannot follow a folder: --follow needs the service")
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


def _follow(service: Client, analysis_id: str) -> None:
    """Show results until Ctrl-C, which also cancels the analysis."""
    import time

    from speck.errors import PermanentError

    last_window = None
    try:
        while (analysis := service.analysis(analysis_id))["state"] == "running":
            if "window" in analysis and analysis["window"] != last_window:
                last_window = analysis["window"]
                _show(analysis)
            time.sleep(_FOLLOW_S)
    except KeyboardInterrupt:
        service.cancel_analysis(analysis_id)
        raise
    raise PermanentError(
        analysis["error"] or f"cannot follow: the analysis was {analysis['state']}"
    )


def _show(analysis: JsonObject) -> None:
    from speck.cli import analyses

    output().show(analysis, *analyses.render(analysis))
