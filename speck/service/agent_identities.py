"""Which agent a site has: it is known by an identity that lies in its state folder.

An agent with another identity has another folder: a machine was swapped, a disk is lost, or two
agents run under one name. Where it lists no states there may be some, so it is refused while jobs
use the site.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from speck.errors import ConflictError, InvalidError
from speck.model.values import cut
from speck.store.records import Records
from speck.store.tables import Batch

_IDENTITY = re.compile("[0-9a-f]{32}")


class AgentIdentities:
    """Remembers the agents' identities; `list_users` returns the jobs and readers that use a
    site."""

    def __init__(self, records: Records, list_users: Callable[[str], list[str]]):
        self._records = records
        self._list_users = list_users
        self._refused: dict[str, str] = {}

    def admit(self, site: str, identity: object) -> None:
        """Take an agent for that of the site, if it is: an agent that reports no identity is. The
        first one is remembered, and another one if nothing uses the site. Raises ConflictError, and
        InvalidError for what is no identity."""
        if isinstance(identity, str) and not _IDENTITY.fullmatch(identity):
            raise InvalidError(f"cannot take {cut(identity)!r} for an agent: write 32 hex digits")
        recorded = self._records.agent_identities.get(site)
        known = recorded["id"] if recorded is not None else None
        if not isinstance(identity, str) or identity == known:
            return
        users = self._list_users(site) if known is not None else []
        if users:
            self._refuse(site, identity, users)
        batch: Batch = {self._records.agent_identities.key(site): {"id": identity}}
        if known is not None:
            message = f"site {site} has another agent, with another state folder"
            batch |= self._records.event("site", message, site=site)
        self._records.write(batch)

    def forget(self, site: str) -> None:
        """The next agent that reports is that of the site."""
        self._records.write({self._records.agent_identities.key(site): None})

    def _refuse(self, site: str, identity: str, users: list[str]) -> None:
        why = "its state folder is another one, without the states that lie in that of the former"
        if self._refused.get(site) != identity:
            self._refused[site] = identity
            used_by = ", ".join(users)
            message = f"an agent of site {site} is refused: {why} ({used_by} use the site)"
            self._records.write(self._records.event("site", message, site=site))
        raise ConflictError(
            f"cannot take this agent for that of site {site!r}: {why}. Give it that folder"
            " (--state-folder), or stop it; if the states are lost, or the former folder was wrong,"
            f" accept it with `speck site update {site} --new-agent`"
        )
