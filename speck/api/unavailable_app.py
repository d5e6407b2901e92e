"""What answers while there is no room to open the store: problems, until there is room again."""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from speck.api.context import EXTENSION, Context
from speck.api.problems import MEDIA_TYPE, REQUEST_ID, RETRY_AFTER_S, problem_body, status_of
from speck.errors import SpeckError, StoreFullError

RETRY_S = 0.5
"""How often to see whether there is room."""

_log = logging.getLogger("speck.api.server")


class UnavailableApp:
    """A WSGI application: the one that `open_app` gives, as soon as it can.

    `/livez` answers in any case, since starting the process anew makes no room.
    """

    def __init__(self, open_app: Callable[[], Flask]):
        self._open_app = open_app
        self._app: Flask | None = None
        self._error: SpeckError | None = None
        self._stopping = threading.Event()
        self._changing = threading.Lock()

    def start(self) -> None:
        """Open the application, or wait aside until there is room for that.

        Raises SpeckError when it cannot be opened for any other reason.
        """
        if not self._try() and self._error is not None:
            _log.error("%s", self._error)
            threading.Thread(target=self._go_on, name="standby", daemon=True).start()

    def stop(self) -> None:
        """Tell the application that the service stops; without one, do not open it any more."""
        with self._changing:
            self._stopping.set()
            if self._app is not None:
                context: Context = self._app.extensions[EXTENSION]
                context.stopping.set()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """WSGI."""
        if self._app is not None:
            return self._app(environ, start_response)
        return self._problem(environ, start_response)

    def _try(self) -> bool:
        with self._changing:
            if self._stopping.is_set():
                return False
            try:
                self._app = self._open_app()
            except StoreFullError as error:
                self._error = error
                return False
            return True

    def _go_on(self) -> None:
        while not self._stopping.wait(RETRY_S):
            try:
                if self._try():
                    _log.info("there is room again: speck goes on")
                    return
            except SpeckError as error:
                _log.error("%s", error)
                os._exit(1)  # nothing is open; the next worker says it again, or goes on

    def _problem(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == "/livez":
            start_response("200 OK", [("Content-Type", "application/json")])
            return [b'{"status":"ok"}\n']
        assert self._error is not None
        identity = secrets.token_hex(8)
        body = problem_body(status_of(self._error), str(self._error), identity)
        headers = [
            ("Content-Type", MEDIA_TYPE),
            ("Retry-After", str(RETRY_AFTER_S)),
            (REQUEST_ID, identity),
        ]
        start_response(f"{body['status']} {body['title']}", headers)
        return [json.dumps(body).encode() + b"\n"]
