"""Changes of sites' addresses: what answers there has to be what the sites had.

The network is asked first (`probe`), without any lock; then the answers are judged (`check`). Sites
are changed together: two of them may exchange their addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from speck.binding import normalise_address
from speck.errors import ConflictError
from speck.model.composition import CompositionDescription, Port
from speck.model.site import Site
from speck.sites.identities import BrokerAnswer, Identities
from speck.store.records import Records
from speck.store.tables import Batch


@dataclass(frozen=True, slots=True)
class Probe:
    """What answers at the new addresses of a site; None where there is no new one.
    `engine_owner`: another site whose jobs run at the new engine."""

    site: Site
    known: Site | None
    broker: BrokerAnswer | None = None
    engine_owner: str | None = None


class Readdressing:
    """Asks what is at new addresses, judges it, and lets the stored documents follow."""

    def __init__(
        self, records: Records, identities: Identities, list_users: Callable[[str], list[str]]
    ):
        """`list_users` returns the jobs and readers that use a site."""
        self._records = records
        self._identities = identities
        self._list_users = list_users

    def probe(
        self, sites: Sequence[Site], *, new_broker: bool = False, by_itself: bool = False
    ) -> list[Probe]:
        """Ask what answers at the addresses that are new; with `new_broker` also at an old one. A
        broker without an identity gets one unless it ought to have one. With `by_itself` no engine
        is asked: the answer would tell the site open ports from closed ones."""
        before = self._records.sites.all()
        wanted = {**before, **{site.name: site for site in sites}}
        probes = []
        for site in sites:
            known, answer, owner = before.get(site.name), None, None
            if known is None or known.broker != site.broker or new_broker:
                is_expected = known is not None and self._list_users(site.name) and not new_broker
                give = None if is_expected else self._identities.make()
                answer = self._identities.ask_broker(site, give)
            if known is not None and known.spe.address != site.spe.address and not by_itself:
                owner = self._identities.find_engine_owner(site, wanted)
            probes.append(Probe(site, known, answer, owner))
        return probes

    def check(
        self, probes: Sequence[Probe], *, new_broker: bool = False, by_itself: bool = False
    ) -> Batch:
        """The identities to store. Raises ConflictError if another site's broker or engine answers,
        or if the sessions of a site that is in use are not at its new broker; with `by_itself` it
        names no other site."""
        batch: Batch = {}
        others = self._records.sites.all().keys()
        for probe in probes:
            name = probe.site.name
            if probe.engine_owner is not None:
                owner = "another site" if by_itself else f"site {probe.engine_owner}"
                raise ConflictError(
                    f"cannot change the addresses of site {name!r}: the engine at"
                    f" {probe.site.spe.address} runs jobs of {owner}; {_EXCHANGED}"
                )
            if probe.broker is None:
                continue
            if probe.broker.identity is not None:
                holder = self._identities.find_holder(
                    probe.broker.identity, (other for other in others if other != name)
                )
                if holder is not None:
                    raise ConflictError(_explain_holder(probe, holder, by_itself=by_itself))
            if not new_broker:
                self._refuse_another_broker(probe, probe.broker)
            batch |= self._identities.put(name, probe.broker.identity)
        return batch

    def _refuse_another_broker(self, probe: Probe, answer: BrokerAnswer) -> None:
        name, recorded = probe.site.name, self._identities.recorded(probe.site.name)
        users = self._list_users(name)
        if probe.known is None or not users or (answer.error is None and recorded is None):
            return
        if answer.error is None and answer.identity == recorded:
            return
        refusal = f"cannot change the addresses of site {name!r}: "
        there = f"the sessions of {', '.join(users)}, and what waits in them"
        if answer.error is not None:
            raise ConflictError(
                f"{refusal}it is not known whether the broker at {probe.site.broker.address} has"
                f" {there}: {answer.error}; start it and try again, or accept a new broker"
                f" ({_CONSENT}), where the sessions are made anew"
            )
        raise ConflictError(
            f"{refusal}the broker at {probe.site.broker.address} is not the one that {name} had: it"
            f" does not have {there}; give the address of that one, or accept a new broker"
            f" ({_CONSENT}), where the sessions are made anew and what waits at the old one is lost"
        )

    def put_documents(self, before: Mapping[str, Site], after: Iterable[Site]) -> Batch:
        """The stored revisions with the new addresses in place of the old ones: a document that
        names an address goes on to mean the same site."""
        changes: dict[str, str] = {}
        for site in after:
            known = before.get(site.name)
            if known is not None:
                pairs = ((known.spe, site.spe), (known.broker, site.broker))
                changes |= {a.address: b.address for a, b in pairs if a.address != b.address}
        batch: Batch = {}
        compositions = self._records.compositions
        for head in compositions.last_heads() if changes else ():
            for number, revision in compositions.revisions(head.name):
                description = _with_addresses(revision.description, changes)
                if description != revision.description:
                    revised = replace(revision, description=description)
                    batch |= compositions.put_revision(head.name, number, revised)
        return batch


_CONSENT = "speck site update --new-broker, or ?new_broker=true"
_EXCHANGED = (
    "if two sites have exchanged their addresses, change both in one request (speck site update -f"
    " FILE, or PUT /sites)"
)


def _explain_holder(probe: Probe, holder: str, *, by_itself: bool) -> str:
    owner = "another site" if by_itself else f"site {holder}"
    verb = "register" if probe.known is None else "change the addresses of"
    advice = (
        "a broker belongs to one site, by whatever name it is reached (and a bridge between two"
        " must carry nothing below speck/)"
    )
    if probe.known is not None:
        advice = _EXCHANGED
    return (
        f"cannot {verb} site {probe.site.name!r}: the broker at {probe.site.broker.address} is that"
        f" of {owner}; {advice}"
    )


def _with_addresses(
    description: CompositionDescription, changes: Mapping[str, str]
) -> CompositionDescription:
    def change(address: str | None) -> str | None:
        return changes.get(normalise_address(address), address) if address else address

    def change_port(port: Port) -> Port:
        return replace(port, broker=change(port.broker))

    return replace(
        description,
        jobs=tuple(
            replace(
                job,
                spe_address=change(job.spe_address),
                source_broker=change(job.source_broker),
                sink_broker=change(job.sink_broker),
            )
            for job in description.jobs
        ),
        inputs=tuple(map(change_port, description.inputs)),
        outputs=tuple(map(change_port, description.outputs)),
    )
