"""Descriptions with every broker given by address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speck.model.composition import CompositionDescription, Port
from speck.model.job import JobDescription
from speck.model.site import Site


def addressed(
    description: CompositionDescription, sites: Mapping[str, Site]
) -> CompositionDescription:
    """The description with every broker given by address, so that equal links are one link."""
    engines = {site.spe.address: site for site in sites.values()}

    def address(broker: str | None, site: str | None, job: JobDescription) -> str | None:
        named = sites.get(site or job.site or "") or engines.get(job.engine_address or "")
        return broker or (named.broker.address if named else None)

    def port(end: Port) -> Port:
        known = sites.get(end.site or "")
        return replace(end, broker=known.broker.address, site=None) if known else end

    jobs = tuple(
        replace(
            job,
            source_broker=address(job.source_broker, job.source_site, job),
            sink_broker=address(job.sink_broker, job.sink_site, job),
            source_site=None,
            sink_site=None,
        )
        for job in description.jobs
    )
    return replace(
        description,
        jobs=jobs,
        inputs=tuple(map(port, description.inputs)),
        outputs=tuple(map(port, description.outputs)),
    )
