"""Addresses in descriptions: engines and brokers by their address, or by their site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speck.binding import normalise_address
from speck.model.composition import CompositionDescription, Port
from speck.model.job import JobDescription
from speck.model.site import Site

__all__ = ["engine_address", "normalise_address", "with_addresses"]


def engine_address(job: JobDescription) -> str | None:
    """`spe_address` in the form in which addresses are compared."""
    return normalise_address(job.spe_address) if job.spe_address else None


def with_addresses(
    description: CompositionDescription, sites: Mapping[str, Site]
) -> CompositionDescription:
    """Return the description with every broker given by its address, so that equal links compare
    equal."""
    engines = {site.spe.address: site for site in sites.values() if site.spe.address}

    def address(broker: str | None, site: str | None, job: JobDescription) -> str | None:
        of_site = sites.get(site or job.site or "") or engines.get(engine_address(job) or "")
        return broker or (of_site.broker.address if of_site else None)

    def port(end: Port) -> Port:
        site = sites.get(end.site or "")
        return replace(end, broker=site.broker.address, site=None) if site else end

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
