"""The paths of what a fog runs: the edge jobs' jars, Flink's jars, the checkout's cache."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from speck.errors import PermanentError

EDGE_JOBS_VARIABLE = "SPECK_EDGE_JOBS"
HOME_VARIABLE = "SPECK_HOME"


def default_folder() -> Path:
    """`$SPECK_HOME/fog`, or `.speck/fog` under the current folder."""
    return Path(os.environ.get(HOME_VARIABLE, ".speck")).absolute() / "fog"


def checkout() -> Path:
    """The folder that holds the `speck` package; the checkout, when installed from one."""
    return Path(__file__).resolve().parents[2]


def cache_folder() -> Path:
    """The folder of downloads in the checkout."""
    return checkout() / ".cache"


def edge_jar(name: str) -> Path:
    """A jar of the edge jobs, e.g. `speck-runtime.jar`.

    It is searched for in `$SPECK_EDGE_JOBS` (a folder of jars, or a built `edge_jobs` tree) or, if
    that is not set, in the checkout's `edge_jobs`. Raises PermanentError with the build command.
    """
    variable = os.environ.get(EDGE_JOBS_VARIABLE)
    root = Path(variable) if variable else checkout() / "edge_jobs"
    for path in (root / name, *sorted(root.glob(f"*/target/{name}"))):
        if path.is_file():
            return path
    raise PermanentError(
        f"cannot find {name} below {root}: run `make jars` in the checkout, or let"
        f" {EDGE_JOBS_VARIABLE} name the folder that holds it"
    )


def flink_folder() -> Path:
    """Flink's own jars (`lib/`, `bin/`), from the package `apache-flink-libraries`.

    Raises PermanentError with a hint how to install it.
    """
    spec = importlib.util.find_spec("pyflink")
    for folder in spec.submodule_search_locations or [] if spec else []:
        if any(Path(folder, "lib").glob("flink-dist*.jar")):
            return Path(folder)
    raise PermanentError(
        "cannot find Flink's jars: install the extra that brings them (pip install 'speck[fog]')"
    )
