"""What placement has to know of the engines that run jobs."""

from __future__ import annotations

from speck.binding import find_taker, has_own_process
from speck.model.site import AgentReport
from speck.placement.places import Hosting
from speck.sites.hosting import explain_unfit
from speck.store.records import Records


def find_hosting(records: Records, composition: str) -> Hosting:
    """By the deployed jobs, the registered sites, and what these sites' agents report."""
    sites = records.sites.all()
    barred: dict[str, dict[str, str]] = {}
    apart: set[str] = set()
    for (scope, name), incarnation in records.incarnations.all().items():
        home, artifact = sites.get(incarnation.job.site), incarnation.job.artifact_kind
        if home is None:
            continue
        kind = find_taker(home.spe, artifact).kind
        if has_own_process(kind):
            apart.add(name)
        for site in sites.values() if scope == composition else ():
            report = records.sites.report(site.name)
            why = explain_unfit(kind, artifact, site, report.body if report else AgentReport())
            if why is not None:
                barred.setdefault(name, {})[site.name] = why
    return Hosting(barred, frozenset(apart))
