"""Sites: register, change, show, check, remove."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from speck.binding import BROKERS, ENGINES, EngineCapability, is_simulated, kinds
from speck.deploy.changes import Changes
from speck.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    Problem,
    SpeckError,
    TransientError,
)
from speck.model.finding import Finding, PartFinding
from speck.model.site import AgentReport, Site
from speck.service.agent_identities import AgentIdentities
from speck.service.agents import Agents
from speck.service.legs import Legs
from speck.service.own_site import OwnSite
from speck.service.readdressing import Readdressing
from speck.service.status import SiteView, StatusViews
from speck.sites.connections import Connections
from speck.sites.identities import Identities
from speck.sites.site_polls import SitePolls
from speck.store.records import Records
from speck.store.tables import Batch


class Sites:
    """The registered sites."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        views: StatusViews,
        polls: SitePolls,
        changes: Changes,
        agents: Agents,
        own_site: OwnSite,
        legs: Legs,
        identities: Identities,
        *,
        simulated: bool = False,
    ):
        """`simulated`: sites that exist in the service's memory alone may be registered."""
        self._records = records
        self._connections = connections
        self._status = views
        self._polls = polls
        self._changes = changes
        self._agents = agents
        self._own_site = own_site
        self._legs = legs
        self._identities = identities
        self._readdressing = Readdressing(records, identities, self._list_users)
        self._agent_identities = AgentIdentities(records, self._list_users)
        self._simulated = simulated

    def add(
        self, site: Site, *, by_itself: bool = False, by: str | None = None
    ) -> tuple[SiteView, bool]:
        """Register a site; False when the same site is registered already. `by_itself`: with a
        token of role site, which may say only what `OwnSite` allows; its engine is not polled for
        the answer then, since the answer would tell open ports from closed ones. `by` names who
        asks.

        Raises ConflictError, InvalidError, ForbiddenError.
        """
        self._check(site)
        known = self._records.sites.all().get(site.name)
        if by_itself:
            self._check_own(site)
        if known is not None and known != site:
            raise ConflictError(
                f"cannot register site {site.name!r}: it is there with another body;"
                f" change it (speck site update, or PUT /sites/{site.name})"
            )
        if known is None:
            self._put([site], by_itself=by_itself, by=by)
        return self._show(site, by_itself), known is None

    def put(
        self,
        site: Site,
        *,
        by_itself: bool = False,
        by: str | None = None,
        new_broker: bool = False,
        new_agent: bool = False,
    ) -> tuple[SiteView, bool]:
        """Register or change; true when it is new. `by_itself` and `by` as with `add`, the rest as
        with `put_all`."""
        self._check(site)
        if by_itself:
            self._check_own(site)
            if new_broker or new_agent:
                raise ForbiddenError(
                    f"cannot accept a new {'broker' if new_broker else 'agent'} for site"
                    f" {site.name!r} with its own token: the old one may hold messages or states;"
                    " an administrator may accept it"
                )
        created = self._put([site], by_itself=by_itself, by=by, new_broker=new_broker)
        if new_agent:
            self._agent_identities.forget(site.name)
        return self._show(site, by_itself), site.name in created

    def put_all(
        self,
        sites: Sequence[Site],
        *,
        by: str | None = None,
        new_broker: bool = False,
        new_agent: bool = False,
    ) -> list[SiteView]:
        """Register or change sites together: they may exchange their addresses. Jobs run on; those
        that have a broker's address in their arguments are restarted with their state by the watch.
        `new_broker` accepts a broker that does not have the sessions of the site, `new_agent` an
        agent that does not have its state folder.

        Raises InvalidError; ConflictError if an address belongs to another site, if another site's
        broker or engine answers there, or if a site in use would get an engine or a broker of
        another kind, or a broker without its sessions.
        """
        names = [site.name for site in sites]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidError(f"cannot change sites: {twice[0]!r} is listed twice")
        for site in sites:
            self._check(site)
        self._put(sites, by=by, new_broker=new_broker)
        for site in sites if new_agent else ():
            self._agent_identities.forget(site.name)
        self._polls.refresh_all(set(names))
        return [self._view(site) for site in sites]

    def _check_own(self, site: Site) -> None:
        """Before anything is asked at addresses that a site gives with its own token."""
        sites = self._records.sites.all()
        allowed = self._own_site.find_allowed(site)
        self._own_site.check(site, sites.get(site.name), sites.values(), allowed)

    def _put(
        self,
        sites: Sequence[Site],
        *,
        by_itself: bool = False,
        by: str | None = None,
        new_broker: bool = False,
    ) -> set[str]:
        """Store sites; returns the names of new ones."""
        self._refuse_foreign_addresses(sites, by_itself=by_itself)
        probes = self._readdressing.probe(sites, new_broker=new_broker, by_itself=by_itself)
        with self._changes.placing:
            before = self._records.sites.all()
            self._refuse_foreign_addresses(sites, by_itself=by_itself)
            for probe in probes:
                if before.get(probe.site.name) != probe.known:
                    raise ConflictError(
                        f"cannot change site {probe.site.name!r}: it was changed meanwhile; try"
                        " again"
                    )
                self._refuse_other_kinds(probe.site, probe.known)
            identities = self._readdressing.check(
                probes, new_broker=new_broker, by_itself=by_itself
            )
            documents = self._readdressing.put_documents(before, sites)
            events = [self._describe_change(site, before.get(site.name), by) for site in sites]
            stored = [self._records.sites.put(site) for site in sites]
            self._records.write(*stored, identities, documents, *events)
            for site in sites:
                self._polls.forget(site.name)
                self._agents.doubt(site.name)
        return {site.name for site in sites} - before.keys()

    def _describe_change(self, site: Site, known: Site | None, by: str | None) -> Batch:
        pairs = ((known.spe, site.spe), (known.broker, site.broker)) if known else ()
        moves = [f"{a.address} -> {b.address}" for a, b in pairs if a.address != b.address]
        outcome = "changed" if known else "registered"
        message = f"site {site.name} {outcome}{': ' if moves else ''}{', '.join(moves)}"
        return self._records.events.make("site", message, site=site.name, by=by)

    def _refuse_other_kinds(self, site: Site, known: Site | None) -> None:
        if known is None:
            return
        if known.kinds != site.kinds:
            self._refuse_busy(site.name, "change the kinds of")

    def get(self, name: str) -> SiteView:
        """A site. Raises NotFoundError."""
        return self._view(self._site(name))

    def refresh(self, names: Collection[str] | None = None) -> None:
        """Poll the engines and brokers of these sites (None: of all), so that their states are
        those of now."""
        known = self._records.sites.all().keys()
        self._polls.refresh_all(set(known if names is None else known & set(names)))

    def all(self, state: str | None = None) -> list[SiteView]:
        """All sites by name."""
        rendered = [self._view(site) for site in self._records.sites.all().values()]
        return [site for site in rendered if state is None or site.state == state]

    def delete(self, name: str, by: str | None = None) -> None:
        """Remove the site. Raises NotFoundError; ConflictError while jobs run there."""
        with self._changes.placing:
            self._site(name)
            self._refuse_busy(name, "remove")
            sessions = self._records.sessions
            writing = self._changes.session_locks.writing
            with writing.all_of(session.client_id for _, session in sessions.at_broker_of(name)):
                self._records.write(
                    self._records.drop_site(name),
                    *(
                        sessions.drop(scope, session.client_id, name)
                        for scope, session in sessions.at_broker_of(name)
                    ),
                    self._records.events.make("site", f"site {name} removed", site=name, by=by),
                )
            self._polls.forget(name)
            self._agents.forget(name)

    def heartbeat(self, name: str, report: AgentReport, *, by_itself: bool = False) -> str:
        """Take a report of the site's agent; returns when it came (RFC 3339). With a token of role
        site (`by_itself`) other agents are sent to the address that it reports only if `OwnSite`
        allows that."""
        self._site(name)
        self._agent_identities.admit(name, report.identity)
        listen = report.listen
        is_new = listen is not None and self._agents.beat(name).listen != listen
        if by_itself and is_new and not self._own_site.may_listen(self._site(name), str(listen)):
            report = replace(report, listen=None, refused_listen=listen)
        return self._agents.heartbeat(name, report)

    def refuse_other_agent(self, name: str, identity: str | None) -> None:
        """Raises ConflictError if this is not the agent of the site: it gets no commands.
        NotFoundError for an unknown site, InvalidError for what is no identity."""
        self._site(name)
        self._agent_identities.admit(name, identity)

    def check(self, name: str) -> list[PartFinding]:
        """Settings that would lose data or starve jobs."""
        site = self._site(name)
        findings: list[PartFinding] = []
        folder = None
        for part in ("engine", "broker"):
            try:
                binder = getattr(self._connections, part)(name)
                findings += [PartFinding.of(part, finding) for finding in binder.check()]
                if part == "engine" and EngineCapability.STATE in binder.capabilities:
                    folder = self._connections.engine(name).state_folder()
                elif part == "broker" and self._identities.finds_stranger(site):
                    findings.append(PartFinding.of(part, _describe_stranger(site)))
            except SpeckError as error:
                findings.append(PartFinding.of(part, _explain_failure(part, name, error)))
        findings += self._agents.findings(name, folder)
        return findings + self._legs.findings(name)

    def _show(self, site: Site, by_itself: bool) -> SiteView:
        if not by_itself:
            self._polls.refresh_all({site.name})
            return self._view(site)
        return self._add_reports(site, self._status.unpolled_site(site))

    def _view(self, site: Site) -> SiteView:
        """A site with the last report of the agent, which is fresher than the stored
        one."""
        return self._add_reports(site, self._status.site(site))

    def _add_reports(self, site: Site, view: SiteView) -> SiteView:
        report = self._agents.beat(site.name)
        agent = report if report != AgentReport() else None
        return replace(view, last_seen=self._agents.last_seen(site.name), agent=agent)

    def _site(self, name: str) -> Site:
        return self._connections.site(name)

    def _check(self, site: Site) -> None:
        problems = []
        beside = site.spe.beside
        for path, kind, group in (
            ("spe.kind", site.spe.kind, ENGINES),
            *([("spe.beside.kind", beside.kind, ENGINES)] if beside is not None else ()),
            ("broker.kind", site.broker.kind, BROKERS),
        ):
            if kind not in kinds(group):
                known = ", ".join(kinds(group))
                problems.append(Problem(path, f"no binder for {kind!r}; installed: {known}"))
            elif not self._simulated and is_simulated(group, kind):
                fault = (
                    f"{kind!r} is for trials: what runs there is lost when the service ends;"
                    " to allow it, start the service with SPECK_SIMULATED=1"
                )
                problems.append(Problem(path, fault))
        if problems:
            raise InvalidError(f"cannot register site {site.name!r}", problems)

    def _refuse_foreign_addresses(self, sites: Sequence[Site], *, by_itself: bool) -> None:
        wanted = {**self._records.sites.all(), **{site.name: site for site in sites}}
        owners: dict[str, list[str]] = {}
        for each in wanted.values():
            for address in set(each.addresses):
                owners.setdefault(address, []).append(each.name)
        for site in sites:
            for address in set(site.addresses):
                others = [name for name in owners[address] if name != site.name]
                if others:
                    raise ConflictError(
                        f"cannot register site {site.name!r}: {address} belongs to"
                        f" {'another site' if by_itself else others[0]}"
                    )

    def _list_users(self, name: str) -> list[str]:
        """The jobs and readers that use a site."""
        jobs = sorted(
            job_name
            for (_, job_name), incarnation in self._records.incarnations.all().items()
            if not incarnation.ended
            and name
            in (incarnation.job.site, incarnation.job.source_site, incarnation.job.sink_site)
        )
        sessions = (session for _, session in self._records.sessions.at_broker_of(name))
        uses = sorted(session.reader for session in sessions if not session.released)
        return list(dict.fromkeys([*jobs, *uses, *self._changes.list_users_of_site(name)]))

    def _refuse_busy(self, name: str, verb: str) -> None:
        if users := self._list_users(name):
            held = ", ".join(users)
            raise ConflictError(f"cannot {verb} site {name!r}: it serves {held}; remove them first")


def _describe_stranger(site: Site) -> Finding:
    return Finding(
        "error",
        "address",
        f"another broker answers at {site.broker.address}",
        "the sessions of the site, and what waits in them, are not there",
        f"speck site update {site.name} --broker URL  # the new address of its own broker\n"
        f"speck site update {site.name} --new-broker  # or accept this one",
    )


def _explain_failure(part: str, site: str, error: SpeckError) -> Finding:
    """The finding for a part that does not answer, or that cannot be called as it is set up: with
    these credentials, say, or under this name."""
    if isinstance(error, TransientError):
        value, mend = "no answer", f"start the {part}, or give its address with PUT /sites/{site}"
    else:
        value, mend = (
            "cannot be used",
            "correct the address, the credentials or the certificate that it names",
        )
    return Finding("error", "address", value, str(error), mend)
