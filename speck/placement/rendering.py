"""A placement -> the composition's new description, and its YAML. Pure.

The graph of jobs stays what it is: every job reads and writes the link that it did, only at
other sites. Where two links would become one, because they have the same topic, one of them
stays away from there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from speck.model.composition import CompositionDescription
from speck.model.job import JobDescription
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.placement.problem import Question, load_name
from speck.placement.wiring import At, WiredJob, Wiring
from speck.spec.options import DEFAULTS
from speck.spec.schema import dump_composition
from speck.spec.yaml_writer import to_yaml

HEADING = (
    "# Written by speck place: comments, anchors and defaults of the file before are not kept."
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is to be: the site of each job, and of each link as it was before.

    `kept_away`: links that could not go where they were wanted, and so may cost more.
    """

    jobs: Mapping[str, str]
    links: Mapping[At, str]
    notes: tuple[str, ...] = ()
    kept_away: tuple[At, ...] = ()

    def loads(self) -> dict[str, str]:
        """The same, by the names of loads."""
        return {**self.jobs, **{load_name(link): site for link, site in self.links.items()}}


def lay_out(question: Question, placed: Mapping[str, str], taken: Collection[At] = ()) -> Layout:
    """Sites of jobs as `placed` says, and of links so that no more crosses between sites than
    the policy has counted. `taken`: links outside the composition, with which none may meet.
    """
    wiring = question.wiring
    jobs = {job.name: placed.get(job.name, job.site) for job in wiring.jobs}
    links = {link: link.site for link in wiring.links if not wiring.open(link)}
    used = {*wiring.links, *taken}
    sent = _sent(question)
    notes, kept_away = [], []
    for link in wiring.links:
        if link in links:
            continue
        costs = _costs(wiring, link, jobs, sent.get(load_name(link), {}))
        wanted = _wanted(wiring, link, jobs, placed, costs)
        free = [site for site in costs if site == link.site or At(site, link.topic) not in used]
        chosen = wanted if wanted in free else min(free, key=lambda site: (costs[site], site))
        if chosen != wanted:
            kept_away.append(link)
            notes.append(
                f"the topic {link} is not moved to {wanted}: another link of that topic is there"
            )
        links[link] = chosen
        used.add(At(chosen, link.topic))
    return Layout(jobs, links, tuple(notes), tuple(kept_away))


def _sent(question: Question) -> dict[str, dict[str, float]]:
    """Records a second between each link and each job that it joins."""
    found: dict[str, dict[str, float]] = {}
    for flow in question.whole.flows:
        found.setdefault(flow.start, {})[flow.end] = flow.records_per_s
        found.setdefault(flow.end, {})[flow.start] = flow.records_per_s
    return found


def _costs(
    wiring: Wiring, link: At, jobs: Mapping[str, str], sent: Mapping[str, float]
) -> dict[str, float]:
    """Records a second that cross between sites if the link lies at a site, by site."""
    ends = sorted({job.name for job in (*wiring.writers[link], *wiring.readers[link])})
    candidates = dict.fromkeys([link.site, *(jobs[end] for end in ends)])
    return {
        site: sum(sent.get(end, 1.0) for end in ends if jobs[end] != site) for site in candidates
    }


def _wanted(
    wiring: Wiring,
    link: At,
    jobs: Mapping[str, str],
    placed: Mapping[str, str],
    costs: dict[str, float],
) -> str:
    """The policy's word; without one where it is now if no place is better, else at a reader."""
    told = placed.get(load_name(link))
    if told is not None:
        costs.setdefault(told, 0.0)
        return told
    best = min(costs.values())
    places = [link.site, *(jobs[reader.name] for reader in wiring.readers[link])]
    good = [site for site in places if costs[site] <= best * (1 + 1e-9)]
    return good[0] if good else min(costs, key=lambda site: (costs[site], site))


def render(
    description: CompositionDescription,
    wiring: Wiring,
    layout: Layout,
    sites: Mapping[str, Site],
) -> CompositionDescription:
    """The description with its jobs and links where the layout has them, each place named as
    its user named it: by site or by address."""
    jobs = tuple(
        _rendered(described, job, layout, sites)
        for described, job in zip(description.jobs, wiring.jobs, strict=True)
    )
    return replace(description, jobs=jobs)


def _rendered(
    described: JobDescription, job: WiredJob, layout: Layout, sites: Mapping[str, Site]
) -> JobDescription:
    site = layout.jobs[job.name]
    moved = described
    if site != job.site and described.spe_address is not None:
        moved = replace(moved, spe_address=sites[site].spe.address)
    elif site != job.site:
        moved = replace(moved, site=site)
    broker, name = _side(described, "source", layout.links[job.source], job.source, site, sites)
    moved = replace(moved, source_broker=broker, source_site=name)
    broker, name = _side(described, "sink", layout.links[job.sink], job.sink, site, sites)
    moved = replace(moved, sink_broker=broker, sink_site=name)
    return moved


def _side(
    described: JobDescription,
    side: str,
    now: str,
    before: At,
    site: str,
    sites: Mapping[str, Site],
) -> tuple[str | None, str | None]:
    """How a job names the broker of one of its links: (address, site)."""
    broker = getattr(described, f"{side}_broker")
    name = getattr(described, f"{side}_site")
    if broker is None and name is None:
        if now == site:
            return None, None
        by_address = described.spe_address is not None
        return (sites[now].broker.address, None) if by_address else (None, now)
    if now == before.site:
        return broker, name
    return (sites[now].broker.address, None) if broker is not None else (None, now)


def composition_yaml(description: CompositionDescription) -> str:
    """The description as YAML that loads to the same, jobs in their order."""
    dumped = dump_composition(description)
    dumped["jobs"] = [_brief(job) for job in dumped["jobs"]]
    ordered = {key: dumped[key] for key in _ORDER if key in dumped}
    return f"{HEADING}\n{to_yaml({**ordered, **dumped})}"


_ORDER = ("name", "drift", "requirements", "jobs", "inputs", "outputs")


def _brief(job: JsonObject) -> JsonObject:
    """The job without what is so anyway."""
    return {k: v for k, v in job.items() if k not in DEFAULTS or DEFAULTS[k] != v}
