"""Builds `speck-programs.pyz`: the link client, the programs, paho-mqtt and kafka-python, in one
zip archive.

    python edge_jobs/python/build.py [FILE]

The archive holds Python alone, for any processor, and the same bytes each time. It needs both
libraries in the Python that runs this (`pip install paho-mqtt kafka-python`).
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path, PurePath

HERE = Path(__file__).parent
OUTPUT = HERE / "target" / "speck-programs.pyz"
_OWN = ("speck_link", "speck_programs")
_LIBRARIES = {"paho-mqtt": "paho", "kafka-python": "kafka"}
"""A package to install -> the one to import."""
_NOT_NEEDED = ("kafka/benchmarks", "kafka/cli", "kafka/__main__.py", "kafka/protocol/old")
_MADE = (2024, 1, 1, 0, 0, 0)


def list_files() -> Iterator[tuple[str, Path]]:
    """Names in the archive, and where the files are. Raises SystemExit if a library is missing."""
    for package in _OWN:
        for file in sorted((HERE / package).rglob("*.py")):
            yield file.relative_to(HERE).as_posix(), file
    for library, package in _LIBRARIES.items():
        try:
            paths = sorted(files(library) or ())
        except PackageNotFoundError:
            sys.exit(f"cannot build the programs: {library} is missing; pip install {library}")
        for path in paths:
            if name := _name(path, package):
                yield name, Path(str(path.locate()))


def _name(path: PurePath, package: str) -> str | None:
    """In the archive: of Python, what describes Kafka's protocol, and licences; None: not there."""
    name = path.as_posix()
    if path.parent.name == "licenses":
        return f"{package}/{path.name}"
    is_code = path.parts[0] == package and path.suffix in (".py", ".json")
    return name if is_code and not name.startswith(_NOT_NEEDED) else None


def build(output: Path = OUTPUT) -> Path:
    """Write the archive and return its path."""
    output.parent.mkdir(parents=True, exist_ok=True)
    fresh = output.with_suffix(".new")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in list_files():
            info = zipfile.ZipInfo(name, _MADE)
            info.external_attr = 0o644 << 16
            archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)
    fresh.rename(output)
    return output


if __name__ == "__main__":
    print(build(*map(Path, sys.argv[1:2])))
