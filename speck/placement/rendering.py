"""Renders a placement as the composition's new description and its YAML. Pure.

The graph of jobs does not change: each job keeps its links, only the sites differ. If two links
with the same topic would meet at one broker, one of them is placed elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from speck.model.composition import CompositionDescription
from speck.model.job import JobDescription
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.placement.instance import Instance
from speck.placement.measurements import load_name_of
from speck.placement.payoff import ERROR
from speck.placement.problem import Question
from speck.placement.wiring import At, WiredJob, Wiring
from speck.spec.options import DEFAULTS
from speck.spec.schema import dump_composition
from speck.spec.yaml_writer import to_yaml

HEADING = (
    "# Written by speck: comments, anchors and default values of the applied file are left out."
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The new site of each job and of each link (a link is named by its former place).

    `kept_away`: links that could not go to their preferred site, and so may cost more.
    """

    jobs: Mapping[str, str]
    links: Mapping[At, str]
    notes: tuple[str, ...] = ()
    kept_away: tuple[At, ...] = ()

    def loads(self) -> dict[str, str]:
        """The site of each load, by its name."""
        return {**self.jobs, **{load_name_of(link): site for link, site in self.links.items()}}


def lay_out(
    question: Question, sites_by_load: Mapping[str, str], foreign_links: Collection[At] = ()
) -> Layout:
    """Choose the sites of jobs and links.

    Jobs go where `sites_by_load` puts them, links where no more bytes cross between sites than the
    policy has counted. `foreign_links`: links outside the composition, with which none may meet.
    """
    wiring = question.wiring
    jobs = {job.name: sites_by_load.get(job.name, job.site) for job in wiring.jobs}
    links = {link: link.site for link in wiring.links if not wiring.is_movable(link)}
    used_links = {*wiring.links, *foreign_links}
    rates, instance = _sum_rates(question), Instance(question.whole)
    notes, kept_away = [], []
    for link in wiring.links:
        if link in links:
            continue
        costs = {
            site: cost
            for site, cost in _list_costs(
                wiring, link, jobs, rates.get(load_name_of(link), {})
            ).items()
            if site == link.site or site not in question.closed
        }
        preferred = _choose_site(wiring, link, jobs, sites_by_load, costs)
        free_sites = [
            site for site in costs if site == link.site or At(site, link.topic) not in used_links
        ]
        chosen = (
            preferred
            if preferred in free_sites
            else min(free_sites, key=lambda site: (costs[site], site))
        )
        why = "there is another link of that topic"
        if chosen != link.site and not _pays(instance, wiring, link, chosen, jobs):
            chosen, why = link.site, "that would not save what the restarts of its jobs cost"
        if chosen != preferred:
            kept_away.append(link)
            notes.append(f"the topic {link} is not moved to {preferred}: {why}")
        links[link] = chosen
        used_links.add(At(chosen, link.topic))
    return Layout(jobs, links, tuple(notes), tuple(kept_away))


def _sum_rates(question: Question) -> dict[str, dict[str, float]]:
    """Records per second between each link and each job that it joins."""
    rates: dict[str, dict[str, float]] = {}
    for flow in question.whole.flows:
        rates.setdefault(flow.start, {})[flow.end] = flow.records_per_s
        rates.setdefault(flow.end, {})[flow.start] = flow.records_per_s
    return rates


def _list_costs(
    wiring: Wiring, link: At, jobs: Mapping[str, str], rates: Mapping[str, float]
) -> dict[str, float]:
    """By candidate site: records per second that cross between sites if the link is there."""
    ends = sorted({job.name for job in (*wiring.writers[link], *wiring.readers[link])})
    candidates = dict.fromkeys([link.site, *(jobs[end] for end in ends)])
    return {
        site: sum(rates.get(end, 1.0) for end in ends if jobs[end] != site) for site in candidates
    }


def _pays(instance: Instance, wiring: Wiring, link: At, site: str, jobs: Mapping[str, str]) -> bool:
    """Whether a link that moves to `site` saves more bytes than the restarts of those of its jobs
    cost that would run on otherwise (`speck.placement.payoff` judges the moves of jobs)."""
    ends = {job.name: job for job in (*wiring.writers[link], *wiring.readers[link])}
    price = sum(
        instance.price_of_restart(name) for name, job in ends.items() if jobs[name] == job.site
    )
    if not price:
        return True
    name = load_name_of(link)
    saved = sum(
        flow.bytes_per_s * ((there != link.site) - (there != site))
        for flow in (*instance.into[name], *instance.out[name])
        if (there := jobs.get(flow.start, jobs.get(flow.end)))
    )
    return (1 - ERROR) * saved > price


def _choose_site(
    wiring: Wiring,
    link: At,
    jobs: Mapping[str, str],
    sites_by_load: Mapping[str, str],
    costs: dict[str, float],
) -> str:
    """Choose the policy's site; without one the current site if none is better, else a reader's."""
    policy_site = sites_by_load.get(load_name_of(link))
    if policy_site is not None:
        costs.setdefault(policy_site, 0.0)
        return policy_site
    lowest_cost = min(costs.values())
    candidates = [link.site, *(jobs[reader.name] for reader in wiring.readers[link])]
    best_sites = [s for s in candidates if s in costs and costs[s] <= lowest_cost * (1 + 1e-9)]
    return best_sites[0] if best_sites else min(costs, key=lambda site: (costs[site], site))


def render(
    description: CompositionDescription,
    wiring: Wiring,
    layout: Layout,
    sites: Mapping[str, Site],
) -> CompositionDescription:
    """Return the description with its jobs and links at the sites of the layout.

    Sites are named as in the description: by name or by address.
    """
    jobs = tuple(
        _render_job(job_description, job, layout, sites)
        for job_description, job in zip(description.jobs, wiring.jobs, strict=True)
    )
    return replace(description, jobs=jobs)


def _render_job(
    description: JobDescription, job: WiredJob, layout: Layout, sites: Mapping[str, Site]
) -> JobDescription:
    site = layout.jobs[job.name]
    rendered = description
    if site != job.site and description.spe_address is not None:
        rendered = replace(rendered, spe_address=sites[site].spe.address)
    elif site != job.site:
        rendered = replace(rendered, site=site)
    broker, name = _name_broker(
        description, "source", layout.links[job.source], job.source, site, sites
    )
    rendered = replace(rendered, source_broker=broker, source_site=name)
    broker, name = _name_broker(description, "sink", layout.links[job.sink], job.sink, site, sites)
    rendered = replace(rendered, sink_broker=broker, sink_site=name)
    return rendered


def _name_broker(
    description: JobDescription,
    side: str,
    site_of_link: str,
    previous_link: At,
    site: str,
    sites: Mapping[str, Site],
) -> tuple[str | None, str | None]:
    """The broker of one of a job's links as the job names it: (address, site)."""
    broker = getattr(description, f"{side}_broker")
    name = getattr(description, f"{side}_site")
    if broker is None and name is None:
        if site_of_link == site:
            return None, None
        by_address = description.spe_address is not None
        return (sites[site_of_link].broker.address, None) if by_address else (None, site_of_link)
    if site_of_link == previous_link.site:
        return broker, name
    return (
        (sites[site_of_link].broker.address, None) if broker is not None else (None, site_of_link)
    )


def render_yaml(description: CompositionDescription) -> str:
    """Render the description as YAML that loads to an equal description; jobs keep their order."""
    data = dump_composition(description)
    data["jobs"] = [_drop_defaults(job) for job in data["jobs"]]
    first_keys = {key: data[key] for key in _ORDER if key in data}
    return f"{HEADING}\n{to_yaml({**first_keys, **data})}"


_ORDER = ("name", "drift", "requirements", "jobs", "inputs", "outputs")


def _drop_defaults(job: JsonObject) -> JsonObject:
    """The job without fields that have their default value."""
    return {k: v for k, v in job.items() if k not in DEFAULTS or DEFAULTS[k] != v}
