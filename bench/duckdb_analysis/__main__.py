"""One analysis by DuckDB, in a process of its own."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from bench.duckdb_analysis import analyse
from speck.analyzer.request import parse_time


def main() -> None:
    """Analyse; write the analysis to the file `--out` and print the seconds it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--since", type=parse_time, required=True)
    parser.add_argument("--until", type=parse_time, required=True)
    parser.add_argument("--composition")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    began = time.perf_counter()
    analysis = analyse(
        options.dataset, options.since, options.until, options.composition, options.cores
    )
    options.out.write_text(json.dumps(analysis))
    print(f"{time.perf_counter() - began:.2f}")


if __name__ == "__main__":
    main()
