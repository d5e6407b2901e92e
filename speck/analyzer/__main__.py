"""`python -m speck.analyzer --dataset FOLDER --out FILE`: analyses a dataset.

Exit status 0 and the analysis in FILE, or 1 and a message on stderr. With `--serve` it answers the
requests on standard input instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path

from speck.analyzer.application import serve
from speck.analyzer.request import (
    STARTING,
    STEP,
    AnalyzerRequest,
    answer,
    describe_failure,
    is_small,
    parse_time,
)
from speck.analyzer.steps import STEPS
from speck.errors import SpeckError
from speck.metrics.dataset.opening import open_storage


def main(arguments: list[str] | None = None) -> int:
    """Run the analyzer; return its exit status."""
    options = _make_parser().parse_args(arguments)
    try:
        _run(options)
    except Exception as error:
        if not isinstance(error, SpeckError):
            traceback.print_exc()
        print(describe_failure(error), file=sys.stderr)
        return 1
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m speck.analyzer", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--dataset", help="folder or URI (file:, s3a:, hdfs:) of the dataset")
    what.add_argument(
        "--serve",
        action="store_true",
        help="stay, and answer requests on standard input until it is closed",
    )
    parser.add_argument(
        "--local",
        type=Path,
        default=Path(tempfile.gettempdir()) / f"speck-dataset-{os.getuid()}",
        help="folder of this machine for what a dataset elsewhere needs here",
    )
    parser.add_argument("--out", type=Path, help="file for the analysis of --dataset")
    parser.add_argument("--composition", help="analyse only the jobs of this composition")
    parser.add_argument(
        "--window", type=float, default=600.0, help="length of the window in seconds (600)"
    )
    parser.add_argument(
        "--since", type=parse_time, help="start of the window, RFC 3339; overrides --window"
    )
    parser.add_argument(
        "--until", type=parse_time, help="end of the window, RFC 3339 (the newest sample)"
    )
    parser.add_argument(
        "--ahead", type=float, help="also forecast the rates of links for so many seconds"
    )
    parser.add_argument(
        "--master", default="local[*]", help="local[n], spark://host:port, yarn or k8s://host"
    )
    parser.add_argument(
        "--driver-host",
        default="127.0.0.1",
        help="address at which a cluster's executors reach this driver (127.0.0.1)",
    )
    parser.add_argument(
        "--secret-file", type=Path, help="file with the cluster's spark.authenticate.secret"
    )
    parser.add_argument(
        "--jars",
        type=Path,
        action="append",
        default=[],
        help="jar, or folder of jars, for driver and executors; may be repeated",
    )
    parser.add_argument(
        "--memory", default="1g", help="heap size of the driver (1g); for few rows less"
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    from speck.analyzer.session import start_session

    start = partial(
        start_session,
        options.master,
        memory=options.memory,
        driver_host=options.driver_host,
        secret_file=options.secret_file,
        jars=options.jars,
    )
    if options.serve:
        serve(start)
        return
    steps = [STARTING, *STEPS] if options.ahead else [STARTING, *STEPS[:-1]]

    def report(step: str) -> None:
        print(f"{STEP}{step} ({steps.index(step) + 1} of {len(steps)})", flush=True)

    report(STARTING)
    request = AnalyzerRequest(
        open_storage(options.dataset, options.local),
        options.out or Path("analysis.json"),
        options.composition,
        options.window,
        options.since,
        options.until,
        options.ahead,
    )
    spark = start(is_small=is_small(request))
    try:
        answer(spark, request, report)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
