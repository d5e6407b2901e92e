"""Builds `speck-programs.pyz`: the link client, the programs, and paho-mqtt, in one zip archive.

    python edge_jobs/python/build.py [FILE]

The archive holds Python alone, for any processor, and the same bytes each time. It needs paho-mqtt
in the Python that runs this.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path

HERE = Path(__file__).parent
OUTPUT = HERE / "target" / "speck-programs.pyz"
_OWN = ("speck_link", "speck_programs")
_MADE = (2024, 1, 1, 0, 0, 0)


def list_files() -> Iterator[tuple[str, Path]]:
    """Names in the archive, and where the files are."""
    for package in _OWN:
        for file in sorted((HERE / package).glob("*.py")):
            yield f"{package}/{file.name}", file
    for path in sorted(files("paho-mqtt") or ()):
        is_source = path.suffix == ".py" and path.parts[0] == "paho"
        is_license = path.parent.name == "licenses"
        if is_source or is_license:
            name = str(path) if is_source else f"paho/{path.name}"
            yield name, Path(str(path.locate()))


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
