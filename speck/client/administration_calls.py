"""Calls about artifacts, tokens, the audit log and backups."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from speck.client.transport import Content, Transport, path_part
from speck.client.uploads import LONG_S, FileBody
from speck.model.values import JsonObject


class AdministrationCalls(Transport):
    """The part of the client that keeps a service."""

    def artifacts(self) -> list[JsonObject]:
        """`{sha256, bytes, at, by, uses}` of each artifact."""
        return self._list("/artifacts", "artifacts", "sha256")

    def push(self, sha256: str, file: Path, on_sent: Callable[[int], object] | None = None) -> bool:
        """Upload an artifact; true when it is new. `on_sent` is called with each chunk's size."""
        with file.open("rb") as stream:
            length = os.fstat(stream.fileno()).st_size
            answer = self._call(
                "PUT",
                f"/artifacts/{path_part(sha256)}",
                data=FileBody(stream, length, on_sent),
                headers={"Content-Type": "application/java-archive"},
            )
        return answer.status_code == 201

    def delete_artifact(self, sha256: str) -> None:
        """Delete an artifact that nothing uses."""
        self._call("DELETE", f"/artifacts/{path_part(sha256)}")

    def collect_artifacts(self, *, dry_run: bool = False) -> JsonObject:
        """Delete all artifacts that nothing uses: `{artifacts, kept, uploads}`, `artifacts` that
        were deleted and `kept` ones that are too new, each `{sha256, bytes, at, by}`, and `uploads`
        deleted at engines, `{site, sha256s, error}` each."""
        return self._json("POST", "/artifacts/gc", query={"dry_run": dry_run})

    def tokens(self) -> list[JsonObject]:
        """Each token, without its secret."""
        return self._list("/tokens", "tokens", "name")

    def own_token(self) -> JsonObject:
        """The token of this client: its role, scopes and time of expiry."""
        return self._json("GET", "/tokens/self")

    def add_token(
        self, name: str, role: str, site: str | None = None, **more: object
    ) -> JsonObject:
        """A new token with its secret in `token`; the service never shows that again. `more` are
        `expires_in` and the scopes `compositions`, `topics` and `sites`."""
        fields = {"name": name, "role": role, "site": site, **more}
        body = {key: value for key, value in fields.items() if value is not None}
        return self._json("POST", "/tokens", json=body)

    def rotate_token(self, name: str, expires_in: str | None = None) -> JsonObject:
        """A new secret for a token, in `token`; the old one is valid for ten more minutes."""
        body = {"expires_in": expires_in} if expires_in else {}
        return self._json("POST", f"/tokens/{path_part(name)}/rotate", json=body)

    def remove_token(self, name: str, *, leave_open: bool = False) -> None:
        """Revoke a token; the last one only with `leave_open`."""
        self._call("DELETE", f"/tokens/{path_part(name)}", query={"open": leave_open})

    def audit(self, limit: int, after: int | None = None) -> list[JsonObject]:
        """The newest lines of the audit log, or those after a number; oldest first."""
        answer = self._json("GET", "/audit", query={"limit": limit, "after": after})
        entries: list[JsonObject] = answer["entries"]
        return entries

    def verify_audit(self, contains: str | None = None) -> JsonObject:
        """Whether the audit log is as the service wrote it: `{ok, lines, first, last_hash,
        faults}`."""
        query = {"contains": contains}
        return self._json("GET", "/audit/verdict", query=query, answer_s=LONG_S)

    def backup(self) -> Content:
        """A backup of the whole store, for `speck restore`."""
        headers = {"Accept": "*/*"}
        answer = self._call("GET", "/backup", stream=True, headers=headers, answer_s=LONG_S)
        return self._content(answer, "backup")
