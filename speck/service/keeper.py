"""What is known of sites' storage without an agent at them: only what their labels say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from speck.binding import CheckpointInfo, Transfer, TransferProgress
from speck.errors import PermanentError
from speck.model import Site


class SharedStorage:
    """Sites that give the same label `state_uri` share storage; others keep states apart, and
    nobody can list or carry them. `sites` gives the registered sites at any moment."""

    def __init__(self, sites: Callable[[], Mapping[str, Site]]) -> None:
        self._sites = sites

    def folder(self, site: str) -> str | None:
        """The label `state_uri`."""
        found = self._sites().get(site)
        return found.state_uri if found else None

    def shared(self, one: str, other: str) -> bool:
        """Whether two sites are one, or say the same `state_uri`."""
        folder = self.folder(one)
        return one == other or (folder is not None and folder == self.folder(other))

    def newest(self, site: str, engine_job_id: str) -> CheckpointInfo | None:
        """Raises PermanentError."""
        raise PermanentError(
            f"cannot list the states of {engine_job_id} at {site}: no agent runs there;"
            f" run `speck agent` at {site}"
        )

    def carry(self, transfer: Transfer) -> TransferProgress:
        """Raises PermanentError."""
        raise PermanentError(
            f"cannot carry the state of {transfer.job_name} from {transfer.source} to"
            f" {transfer.target}: no agents run there; run `speck agent` at both sites"
        )

    def drop(self, site: str, path: str) -> None:
        """Raises PermanentError."""
        raise PermanentError(
            f"cannot delete {path} at {site}: no agent runs there; run `speck agent` at {site}"
        )
