"""Starts a Python program in its own interpreter; the runner hands this text to `python3 -c`.

Arguments may hold secrets, and every user of a machine may read command lines: so they lie in a
file. It imports nothing of speck.
"""

import json
import runpy
import sys
from importlib import import_module

with open(sys.argv[1], "rb") as file:
    start = json.load(file)
artifact, (module, _, function) = start["artifact"], start["entry"].partition(":")
sys.argv[:] = [artifact, *start["args"]]
if not module:
    runpy.run_path(artifact, run_name="__main__")
else:
    sys.path.insert(0, artifact)
    if function:
        sys.exit(getattr(import_module(module), function)())
    runpy.run_module(module, run_name="__main__", alter_sys=True)
