"""Which agent a site has: it is known by an identity that lies in its state folder.

An agent with another identity has another folder: a machine was swapped, a disk is lost, or two
agents run under one name. Where it lists no states there may be some, and of two that run neither
may take the other's place, so it is refused until a person accepts it, or removes the site.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from speck.errors import ConflictError, InvalidError
from speck.model.values import cut
from speck.store.records import Records

_IDENTITY = re.compile("[0-9a-f]{32}")


class AgentIdentities:
    """Remembers the agents' identities; `list_users` returns the jobs and readers that use a
    site."""

    def __init__(self, records: Records, list_users: Callable[[str], list[str]]):
        self._records = records
        self._list_users = list_users
        self._lock = threading.Lock()
        self._refused: dict[str, str] = {}

    def admit(self, site: str, identity: object) -> None:
        """Take an agent for that of the site, if it is: an agent that reports no identity is. The
        first one is remembered. Raises ConflictError for another one, and InvalidError for what is
        no identity."""
        if isinstance(identity, str) and not _IDENTITY.fullmatch(identity):
            raise InvalidError(f"cannot take {cut(identity)!r} for an agent: write 32 hex digits")
        if not isinstance(identity, str):
            return
        with self._lock:  # the first requests of two agents may come at the same time
            recorded = self._records.sites.agent_identity(site)
            if recorded is None:
                self._records.write(self._records.sites.put_agent_identity(site, identity))
            elif identity != recorded:
                self._refuse(site, identity)

    def forget(self, site: str) -> None:
        """The next agent that reports is that of the site."""
        self._records.write(self._records.sites.put_agent_identity(site, None))

    def _refuse(self, site: str, identity: str) -> None:
        why = "its state folder is another one, without the states that lie in that of the former"
        if self._refused.get(site) != identity:
            self._refused[site] = identity
            users = self._list_users(site)
            used_by = f" ({', '.join(users)} use the site)" if users else ""
            message = f"an agent of site {site} is refused: {why}{used_by}"
            self._records.write(self._records.events.make("site", message, site=site))
        raise ConflictError(
            f"cannot take this agent for that of site {site!r}: {why}. Give it that folder"
            " (--state-folder), or stop it; if the states are lost, the former folder was wrong, or"
            f" the machine is a new one, accept it with `speck site update {site} --new-agent`"
        )
