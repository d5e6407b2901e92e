"""The README's example with the paper's fields is a job."""

from __future__ import annotations

import json
import re
from pathlib import Path

from speck.spec.schema import job_from_data

README = Path(__file__).parents[3] / "README.md"


def test_the_paper_s_fields_describe_a_job() -> None:
    bodies = [json.loads(body) for body in re.findall(r"-d '(\{.*?\})'", README.read_text(), re.S)]
    (paper,) = [body for body in bodies if "spe_address" in body]
    job = job_from_data(paper)
    assert job.spe_address == "http://172.16.39.7:8081"
    assert (job.source_broker, job.sink_broker) == (
        "tcp://172.16.39.7:1883",
        "tcp://172.16.192.18:1883",
    )
