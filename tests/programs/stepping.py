"""A program that keeps the contract of programs, and counts its steps; it uses no link."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

STEP_S = 0.05

parser = argparse.ArgumentParser()
parser.add_argument("--records", type=int)
parser.add_argument("--fail-at", type=int, help="end with status 3 at this step")
parser.add_argument("--allocate-mb", type=int, default=0)
parser.add_argument("--child", action="store_true", help="start another process")
parser.add_argument("--stubborn", action="store_true", help="do not end")
parser.add_argument("--late-s", type=float, default=0.0, help="until it is ready")
parser.add_argument("--silent", action="store_true", help="report nothing")
arguments, _ = parser.parse_known_args()

state = Path(os.environ["SPECK_STATE_DIR"])
report = Path(os.environ["SPECK_REPORT"])
request = Path(os.environ["SPECK_REQUEST"])
began = time.monotonic()
over = []
signal.signal(signal.SIGTERM, lambda *_: None if arguments.stubborn else over.append(True))

if arguments.child:
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (report.parent / "child").write_text(str(child.pid))
memory = bytearray(arguments.allocate_mb << 20)

checkpoint = state / "checkpoint"
number = int.from_bytes(checkpoint.read_bytes(), "big") if checkpoint.exists() else 0
(state / "starts").open("a").write(f"{number}\n")
print("started at", number, flush=True)


def wanted():
    try:
        return int(request.read_text())
    except (OSError, ValueError):
        return 0


steps = 0
while not over:
    asked = wanted()
    number, steps = number + 1, steps + 1
    fresh = state / "checkpoint.new"
    fresh.write_bytes(number.to_bytes(8, "big"))
    fresh.rename(checkpoint)
    content = {
        "start": int(os.environ["SPECK_START"]),
        "ready": time.monotonic() - began >= arguments.late_s,
        "request": asked,
        "interval_ms": int(STEP_S * 1000),
        "connected": None,
        "records_in": steps,
        "records_out": steps,
        "busy_ms": 1,
        "idle_ms": steps * 50,
        "back_pressured_ms": 0,
        "counters": {"steps": steps},
    }
    if not arguments.silent:
        fresh = report.with_suffix(".new")
        fresh.write_text(json.dumps(content))
        fresh.rename(report)
    if steps == arguments.fail_at:
        print("cannot go on: step", steps, file=sys.stderr)
        sys.exit(3)
    if arguments.records is not None and steps >= arguments.records:
        break
    time.sleep(STEP_S)
