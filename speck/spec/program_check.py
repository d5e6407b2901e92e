"""Whether a file is a Python program: a script that reads one file, in a process with limits.

Python's parser takes quadratic time for some texts, and a thousand times their size in memory;
meanwhile no other thread of its process runs. Run by its path and without the site packages, this
starts in some 20 ms. It ends with status 0 for a program.
"""

from __future__ import annotations

import ast
import os
import resource
import sys
import warnings

CPU_S = 1
MEMORY_BYTES = 384 << 20
"""Of address space, the interpreter included. A usual program of 256 KiB takes some 60 MB."""


def main(path: str) -> int:
    """0 if the file is a program, which has at least one import: a word is an expression, too."""
    os.nice(10)  # the service goes first
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warnings.simplefilter("ignore")
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read().decode())
        imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree))
    except Exception:  # SyntaxError, RecursionError, MemoryError, SystemError, ...
        return 1
    return 0 if imports else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
