"""`python -m speck.analyzer --dataset FOLDER --out FILE`: analyses a dataset once, or continuously.

Exit status 0 and the analysis in FILE, or 1 and a message on stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path

from speck.errors import InvalidError, SpeckError


def main(arguments: list[str] | None = None) -> int:
    """Run the analyzer; return its exit status."""
    options = _make_parser().parse_args(arguments)
    try:
        _run(options)
    except SpeckError as error:
        print(error, file=sys.stderr)
        for problem in getattr(error, "problems", ()):
            print(f"  {problem}", file=sys.stderr)
        return 1
    except Exception as error:
        traceback.print_exc()
        print(f"cannot analyse: {_describe_cause(error)}", file=sys.stderr)
        return 1
    return 0


def _describe_cause(error: Exception) -> str:
    """The first line of the error; for a Java error that of its root cause."""
    if isinstance(error, ModuleNotFoundError) and error.name == "pyspark":
        return "PySpark is not installed; install it with `pip install speck[analyzer]`"
    lines = str(error).splitlines() or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else next((line for line in lines if line.strip()), lines[0])


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m speck.analyzer", description=__doc__)
    parser.add_argument("--dataset", type=Path, required=True, help="folder of the dataset")
    parser.add_argument("--out", type=Path, required=True, help="file for the analysis")
    parser.add_argument("--composition", help="analyse only the jobs of this composition")
    parser.add_argument(
        "--window", type=float, default=600.0, help="length of the window in seconds (600)"
    )
    parser.add_argument(
        "--since", type=_parse_time, help="start of the window, RFC 3339; overrides --window"
    )
    parser.add_argument(
        "--until", type=_parse_time, help="end of the window, RFC 3339 (the newest sample)"
    )
    parser.add_argument(
        "--ahead", type=float, help="also forecast the rates of links for so many seconds"
    )
    parser.add_argument("--master", default="local[*]", help="local[n] or spark://host:port")
    parser.add_argument(
        "--driver-host",
        default="127.0.0.1",
        help="address at which a cluster's executors reach this driver (127.0.0.1)",
    )
    parser.add_argument(
        "--secret-file", type=Path, help="file with the cluster's spark.authenticate.secret"
    )
    parser.add_argument(
        "--follow", action="store_true", help="analyse again whenever there are new samples"
    )
    parser.add_argument("--tied", action="store_true", help="exit when standard input is closed")
    parser.add_argument("--memory", default="1g", help="heap size of the driver (1g)")
    return parser


def _parse_time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _run(options: argparse.Namespace) -> None:
    from speck.analyzer import follow, reading, result, run
    from speck.analyzer.session import start_session

    if options.tied:
        threading.Thread(target=_end_with_input, daemon=True).start()

    spark = start_session(
        options.master,
        memory=options.memory,
        driver_host=options.driver_host,
        secret_file=options.secret_file,
    )
    try:
        if options.follow:
            follow.follow(spark, options.dataset, options.out, options.window, options.composition)
            return
        until = options.until or reading.find_newest(spark, options.dataset, options.composition)
        since = options.since or until - timedelta(seconds=options.window)
        if since >= until:
            raise InvalidError("cannot analyse: the window ends before it begins")
        span = reading.Span(since, until)
        analysis = run.analyse(spark, options.dataset, span, options.composition)
        if options.ahead:
            ahead = timedelta(seconds=options.ahead)
            analysis["forecast"] = run.forecast_links(spark, options.dataset, until, ahead)
        result.write(analysis, options.out)
    finally:
        spark.stop()


def _end_with_input() -> None:
    """Exit, with the JVM, when the process that holds the other end of standard input is gone."""
    while os.read(
        0, 1024
    ):  # not sys.stdin: a thread that waits there breaks the interpreter's exit
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
