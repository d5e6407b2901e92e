"""The sites' agents: they report how a site is, list its state, and transfer state to another.

The commands that make up a transfer are in `speck.sites.state_transfer`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from speck.agent.layout import StateLayout
from speck.binding import SavedState, Transfer, TransferProgress, find_taker, state_layout
from speck.clock import Clock, rfc3339
from speck.errors import NotFoundError, PermanentError, TransientError, UnreachableError
from speck.model.engines import EngineAt
from speck.model.finding import PartFinding
from speck.model.site import AgentReport, Site
from speck.service import agent_check
from speck.service.agent_check import is_root
from speck.sites.agent_channel import SiteChannels
from speck.sites.agent_commands import SILENT_S, AgentCommand
from speck.sites.state_requests import StateRequests
from speck.sites.state_transfer import Transfers
from speck.store.records import Records
from speck.store.sites import StoredReport

_STORE_EVERY_S = 10.0
_REPORTED_AT_ONCE = (
    *("identity", "state_folder", "listen", "refused_listen", "versions", "memory_bytes"),
)


class Agents:
    """Keeps state at sites and carries it between them; a `speck.binding.StateKeeper`.

    A site's label `state_uri` says where its engine keeps state; the same label at two sites
    means storage that both read. Without the label, the site's agent reports its folder.
    """

    def __init__(
        self,
        records: Records,
        sites: Callable[[], Mapping[str, Site]],
        clock: Clock,
        engine_folder: Callable[[EngineAt], str | None] = lambda engine: None,
        channels: SiteChannels | None = None,
    ):
        """`engine_folder` returns the URI of the checkpoints of an engine; None when the
        engine does not report it. `channels` holds the commands that agents are given."""
        self._records = records
        self._sites = sites
        self._engine_folder = engine_folder
        self._clock = clock
        self._channels = channels or SiteChannels(clock)
        self.commands = self._channels.commands
        self._requests = StateRequests(self.commands)
        self.silent_s = SILENT_S
        """An agent that has been silent for this long is unreachable."""
        self._lock = threading.RLock()
        self._beats: dict[str, StoredReport] = {}
        self._stored: dict[str, float] = {}
        self._agreed: dict[EngineAt, str] = {}
        self.transfers = Transfers(
            records, clock, self.commands, self._listen, self._refuse_silent, self._layouts
        )

    # --- what agents report ------------------------------------------------------------------

    def heartbeat(self, name: str, body: AgentReport) -> str:
        """Take an agent's report. It is stored at once when more than figures has changed, and
        every 10 s otherwise. Returns when it came (RFC 3339). Raises NotFoundError."""
        self._site(name)
        self.commands.hear(name)
        report = StoredReport(rfc3339(self._clock.now()), body)
        before = self.beat(name)
        same = all(getattr(before, each) == getattr(body, each) for each in _REPORTED_AT_ONCE)
        with self._lock:
            self._beats[name] = report
            now = self._clock.monotonic()
            due = not same or now - self._stored.get(name, float("-inf")) >= _STORE_EVERY_S
            if due:
                self._stored[name] = now
        if due:
            self._records.write(self._records.sites.put_report(name, report))
        return report.at

    def open_commands(
        self,
        site: str,
        known: Collection[str],
        wait_s: float,
        stopping: Callable[[], bool] = lambda: False,
    ) -> list[AgentCommand]:
        """The open commands for a site's agent. Raises NotFoundError."""
        self._site(site)
        self.transfers.end_unwanted()
        return self.commands.open(site, known, wait_s, stopping)

    def beat(self, site: str) -> AgentReport:
        """The last report of a site's agent; empty when the site has no agent."""
        report = self._report(site)
        return report.body if report is not None else AgentReport()

    def last_seen(self, site: str) -> str | None:
        """When a site's agent reported last (RFC 3339); None when it never did."""
        report = self._report(site)
        return report.at if report is not None else None

    def last_report(self, site: str) -> tuple[AgentReport, datetime | None]:
        """The last report of a site's agent, and when it came."""
        seen = self.last_seen(site)
        return self.beat(site), datetime.fromisoformat(seen) if seen else None

    def forget(self, site: str) -> None:
        """The site is removed."""
        with self._lock:
            self._beats.pop(site, None)
            self._stored.pop(site, None)
        self.doubt(site)
        self._channels.forget(site)

    # --- StateKeeper -----------------------------------------------------------------------

    def folder(self, site: str) -> str | None:
        """The URI below which a site's engine keeps state; None when it is not known."""
        known = self._sites().get(site)
        if known is None:
            return None
        if known.state_uri is not None:
            return known.state_uri
        folder = self.beat(site).state_folder
        return f"file://{folder}" if folder is not None else None

    def shares_storage(self, one: str, other: str) -> bool:
        """Whether nothing needs to travel between two sites."""
        if one == other:
            return True
        sites = self._sites()
        uris = [sites[name].state_uri if name in sites else None for name in (one, other)]
        return uris[0] is not None and uris[0] == uris[1]

    def newest(
        self, engine: EngineAt, engine_job_id: str, folder: str | None = None
    ) -> SavedState | None:
        """The newest checkpoint, by listing the folder, and the job's own `folder`. Raises
        UnreachableError; PermanentError without an agent, or with one whose folder is not the
        engine's: it would find none."""
        lister = self._lister(engine.site)
        self._refuse_silent(lister)
        layout = self._layout(engine)
        self._refuse_elsewhere(engine, layout, lister)
        states = self._requests.list(lister, engine_job_id, layout, folder)
        return states[0] if states else None

    def drop(self, site: str, path: str) -> None:
        """Delete a state that is no longer needed."""
        layouts, lister = self._layouts(site), self._lister(site)
        self._refuse_silent(lister)
        self._requests.drop(lister, path, layouts)
        self.transfers.forget_copy(site, path)

    def carry(self, transfer: Transfer) -> TransferProgress:
        """Start a transfer or continue it. Raises UnreachableError while one of the two agents
        is silent, TransientError for what may succeed when tried again."""
        return self.transfers.carry(transfer)

    # --- agents of sites ------------------------------------------------------------------

    def _lister(self, site: str) -> str:
        """The site itself, or another that reads the same storage and has an agent."""
        if self._report(site) is None:
            for other in sorted(self._sites()):
                if other != site and self.shares_storage(site, other) and self._report(other):
                    return other
        return site

    def _listen(self, site: str) -> str | None:
        """Where other agents reach that of a site; None: they do not."""
        return self.beat(site).listen

    def _refuse_silent(self, site: str) -> None:
        self._site(site)
        report = self._report(site)
        if report is None:
            raise PermanentError(
                f"cannot reach state at {site}: the site has no agent; run `speck agent --site"
                f" {site} --state-folder FOLDER` beside its engine, or give sites that share"
                " storage the same label state_uri"
            )
        silent = self.commands.silent_s(site)
        if silent is None or silent > self.silent_s:
            raise UnreachableError(f"cannot reach the agent of {site}: last heard at {report.at}")

    def _refuse_elsewhere(self, engine: EngineAt, layout: StateLayout, lister: str) -> None:
        """Raises PermanentError when the agent lists another folder than the engine writes to; the
        engine is queried once for each folder that an agent reports."""
        reported = str(self.beat(lister).state_folder)
        if self._agreed.get(engine) == reported:
            return
        try:
            folder = self._engine_folder(engine)
        except TransientError as error:
            raise UnreachableError(
                f"cannot tell whether the agent of {lister} searches where the engine of"
                f" {engine.site} keeps its checkpoints: {error}"
            ) from error
        if folder is not None and not is_root(folder, reported, layout.automatic_root):
            raise PermanentError(
                f"cannot list states of {engine.site}: its agent searches below {reported}, but the"
                f" engine keeps its checkpoints in {folder}; start the agent with the right"
                " --state-folder"
            )
        self._agreed[engine] = reported

    def doubt(self, site: str) -> None:
        """Forget that a site's agent and engine use the same folder: the site has changed."""
        self._agreed = {at: folder for at, folder in self._agreed.items() if at.site != site}

    def _automatic_root(self, site: str) -> str:
        """The folder of the states that a site's engine takes by itself, in the state folder."""
        layout = state_layout(self._site(site).spe.kind)
        return layout.automatic_root if layout is not None else ""

    def _layout(self, engine: EngineAt) -> StateLayout:
        """How an engine keeps states. Raises PermanentError if it keeps none."""
        kind = find_taker(self._site(engine.site).spe, engine.artifact).kind
        layout = state_layout(kind)
        if layout is None:
            raise PermanentError(
                f"cannot find states at {engine.site}: its engine, of kind {kind}, keeps none in"
                " files"
            )
        return layout

    def _layouts(self, site: str) -> list[StateLayout]:
        """Where the engines of a site keep states. Raises PermanentError if none keeps any."""
        engines = self._site(site).spe.all
        layouts = [layout for each in engines if (layout := state_layout(each.kind)) is not None]
        if not layouts:
            raise PermanentError(
                f"cannot find states at {site}: its engine, of kind {engines[0].kind}, keeps none"
                " in files"
            )
        return layouts

    def _site(self, name: str) -> Site:
        site = self._sites().get(name)
        if site is None:
            raise NotFoundError(
                f"cannot find site {name!r}; register it (speck site add, or POST /sites)"
            )
        return site

    def _report(self, site: str) -> StoredReport | None:
        """The last report; None when there never was one."""
        with self._lock:
            if site not in self._beats:
                stored = self._records.sites.report(site)
                if stored is None:
                    return None
                self._beats[site] = stored
            return self._beats[site]

    # --- site check ------------------------------------------------------------------------

    def findings(self, name: str, engine_folder: str | None) -> list[PartFinding]:
        """Problems of a site's agent. `engine_folder` is the engine's own checkpoint folder,
        None when the engine does not report it."""
        site = self._site(name)
        report = self._report(name)
        if report is None:
            findings = [] if site.state_uri is not None else [agent_check.MISSING]
        else:
            silent = self.commands.silent_s(name)
            is_silent = silent is None or silent > self.silent_s
            findings = agent_check.findings(
                report.body,
                report.at if is_silent else None,
                engine_folder,
                self._automatic_root(name),
            )
            kinds = (engine.kind for engine in site.spe.all)
            findings += agent_check.find_shortages(report.body, kinds)
        return [PartFinding.of("agent", finding) for finding in findings]
