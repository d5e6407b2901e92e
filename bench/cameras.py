"""What the traffic application is fed and made of when it is moved: cameras' records, all jobs in
the cloud, and where they should be."""

from __future__ import annotations

import json
import random

import yaml

from bench.detections import STREAMS, TRAFFIC, edge_of, encode
from speck.fog.reference import Detection
from speck.model import JsonObject

CLOUD = "cloud"
LINK = {"batch_records": 100, "linger_ms": 50, "compression": "zstd"}
"""Of each Forward's sink: what Merge reads."""
WINDOW_MS = 500


def _drawn() -> str:
    """What a camera saw a vehicle by. Drawn by chance: it compresses no better than figures do."""
    record = {
        "lane": _DRAW.randint(1, 4),
        "heading_deg": round(_DRAW.uniform(0, 360), 1),
        "confidence": round(_DRAW.uniform(0.5, 1), 4),
        "plate": f"{_DRAW.getrandbits(64):016x}",
        "colour": _DRAW.choice(["white", "black", "grey", "silver", "blue", "red", "green"]),
        "exposure_us": _DRAW.randint(200, 20_000),
        "gain_db": round(_DRAW.uniform(0, 24), 1),
        "model": "detector-7b",
        "firmware": "4.2.1",
        "track": [
            {"x": round(_DRAW.uniform(0, 1920), 1), "y": round(_DRAW.uniform(0, 1080), 1)}
            for _ in range(TRACK)
        ],
    }
    return json.dumps(record, separators=(",", ":"))[1:]


TRACK = 16
"""Points that a camera followed a vehicle by."""
_DRAW = random.Random(5)
_EXTRAS = [_drawn() for _ in range(2003)]
"""Many more than a batch holds."""


def camera(stream: str, number: int, seen: Detection) -> bytes:
    """A detection as a camera would send it, with what it saw it by: some 780 bytes."""
    extra = _EXTRAS[(number * 7 + sum(stream.encode())) % len(_EXTRAS)]
    return encode(stream, number, seen)[:-1] + b"," + extra.encode()


def composition() -> JsonObject:
    """compositions/traffic/cloud.yaml with short windows, and what Forward sends batched."""
    content: JsonObject = yaml.safe_load((TRAFFIC / "cloud.yaml").read_text())
    for job in content["jobs"]:
        words = job.get("args", [])
        if "--window" in words:
            words[words.index("--window") + 1] = f"{WINDOW_MS}ms"
        if job["entry_class"].endswith(".Forward"):
            job["link"] = dict(LINK)
    return content


def laid_out() -> JsonObject:
    """What is expected of the placement: each site's jobs at its edge, results in the cloud."""
    content = composition()
    for job in content["jobs"]:
        site = job["job_name"].rpartition("-")[2][0]
        if site.upper() in STREAMS and job["job_name"] != "merge":
            job["site"] = edge_of(site)
            clean = job["entry_class"].endswith(".Clean")
            job["source_site"], job["sink_site"] = edge_of(site), edge_of(site) if clean else CLOUD
    return content
