"""What the traffic application is fed and made of when it is moved: cameras' records, all jobs in
the cloud, and where they should be."""

from __future__ import annotations

import functools
import json
import random
import re

import yaml

from bench.common import is_quick
from bench.detections import STREAMS, TRAFFIC, edge_of, encode
from speck.fog.trace import Detection
from speck.model.values import JsonObject

CLOUD = "cloud"
LINK = {"batch_records": 100, "linger_ms": 50, "compression": "zstd"}
"""Of each Forward's sink: what Merge reads."""
WINDOW_MS = 500


def _draw_extra(draw: random.Random) -> str:
    """How a camera detected a vehicle; random, so it compresses no better than numbers do."""
    record = {
        "lane": draw.randint(1, 4),
        "heading_deg": round(draw.uniform(0, 360), 1),
        "confidence": round(draw.uniform(0.5, 1), 4),
        "plate": f"{draw.getrandbits(64):016x}",
        "colour": draw.choice(["white", "black", "grey", "silver", "blue", "red", "green"]),
        "exposure_us": draw.randint(200, 20_000),
        "model": "detector-7b",
        "features": [round(draw.uniform(-1, 1), 4) for _ in range(475)],
    }
    return json.dumps(record, separators=(",", ":"))[1:]


@functools.cache
def _draw_extras() -> list[str]:
    """Many more than a batch holds."""
    draw = random.Random(5)
    return [_draw_extra(draw) for _ in range(2003)]


def camera(stream: str, number: int, detection: Detection) -> bytes:
    """A detection as a camera would send it, with details of the recognition: some 4000 bytes."""
    extras = _draw_extras()
    extra = extras[(number * 7 + sum(stream.encode())) % len(extras)]
    return encode(stream, number, detection)[:-1] + b"," + extra.encode()


def sites() -> tuple[str, ...]:
    """The sites that take part: in QUICK=1 one of three."""
    return ("A",) if is_quick() else tuple(STREAMS)


def composition() -> JsonObject:
    """compositions/traffic/cloud.yaml with short windows, and with Forward's output batched."""
    content: JsonObject = yaml.safe_load((TRAFFIC / "cloud.yaml").read_text())
    absent = {edge_of(site) for site in STREAMS if site not in sites()}
    for name in ("jobs", "inputs", "outputs"):
        content[name] = [each for each in content[name] if edge_of_entry(each) not in absent]
    for job in content["jobs"]:
        words = job.get("args", [])
        if "--window" in words:
            words[words.index("--window") + 1] = f"{WINDOW_MS}ms"
        if job["job_name"] == "merge":
            job["pinned"] = True  # the application's Job 4 is the cloud's, whatever it would save
            streams = [stream for site in sites() for stream in STREAMS[site]]
            words[words.index("--streams") + 1] = ",".join(streams)
        if job["entry_class"].endswith(".Forward"):
            job["link"] = dict(LINK)
    return content


def edge_of_entry(entry: JsonObject) -> str:
    """The edge that a job, an input or an output belongs to; else the cloud."""
    name = str(entry.get("job_name") or entry.get("client_id") or entry["topic"])
    match = _SITE.search(name)
    return edge_of(match[1]) if match else CLOUD


_SITE = re.compile(r"(?:[-/])([abcABC])\d?$")


def laid_out() -> JsonObject:
    """The expected placement: each site's jobs at its edge, results in the cloud."""
    content = composition()
    for job in content["jobs"]:
        edge = edge_of_entry(job)
        clean = job["entry_class"].endswith(".Clean")
        job["site"] = job["source_site"] = edge
        job["sink_site"] = edge if clean else CLOUD
    return content


def expected_moves() -> dict[str, str]:
    """Job -> edge, of all jobs that belong to one."""
    jobs = [job["job_name"] for job in laid_out()["jobs"]]
    return {job: edge for job in jobs if (edge := edge_of_entry({"job_name": job})) != CLOUD}
