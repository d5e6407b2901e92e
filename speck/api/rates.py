"""/rates: the rates of jobs between the collector's last two polls"""

from __future__ import annotations

from dataclasses import asdict

from flask import Response

from speck.api import shapes
from speck.api.access import reach
from speck.api.context import service
from speck.api.requests import Query, paging, text
from speck.api.routes import Routes, listing
from speck.model.shown import render

routes = Routes("rates", "Current rates of jobs")


@routes.get(
    "/rates",
    query=[text("composition", "only jobs of this composition"), *paging("job_name")],
    answers={200: shapes.RatesListShape},
)
def list_rates(query: Query) -> Response:
    """The rates of all deployed jobs between the collector's last two polls."""
    composition, has_job = query["composition"], reach().has_job
    board = service().board
    jobs = [
        {**render(job), **render(job.rates), **asdict(board.losses(job.job_name))}
        for job in sorted(service().sampler.rate_jobs(), key=lambda job: job.job_name)
        if composition in (None, job.composition) and has_job(job.job_name)
    ]
    return listing("jobs", jobs, "job_name", query)
