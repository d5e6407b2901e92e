"""The application that answers with problems while the disk is too full to open the store."""

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
from speck.errors import SpeckError, StoreError, StoreFullError

RETRY_S = 0.5
"""Time between two attempts to open the store, in seconds."""

_log = logging.getLogger("speck.api.server")


class UnavailableApp:
    """A WSGI application that becomes that of `open_app` once it can be opened.

    `/livez` always answers, since a restart of the process would not free any space.
    """

    def __init__(self, open_app: Callable[[], Flask]):
        self._open_app = open_app
        self._app: Flask | None = None
        self._error: StoreError | None = None
        self._stopping = threading.Event()
        self._changing = threading.Lock()

    def start(self) -> None:
        """Open the application; while the disk is too full, try again in the background.

        Raises SpeckError when it cannot be opened for another reason.
        """
        if not self._try() and self._error is not None:
            _log.error("%s", self._error)
            threading.Thread(target=self._retry_until_open, name="standby", daemon=True).start()

    def stop(self) -> None:
        """Tell the application that the service stops, or stop trying to open it."""
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

    def _retry_until_open(self) -> None:
        while not self._stopping.wait(RETRY_S):
            try:
                if self._try():
                    _log.info("the store could be opened: there is space on the disk again")
                    return
            except SpeckError as error:
                _log.error("%s", error)
                os._exit(1)  # nothing is open; the next worker tries again

    def _problem(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == "/livez":
            start_response("200 OK", [("Content-Type", "application/json")])
            return [b'{"status":"ok"}\n']
        assert self._error is not None
        identity = secrets.token_hex(8)
        # the error itself names folders, and anybody may ask
        detail = f"cannot take requests: {self._error.public}"
        body = problem_body(status_of(self._error), detail, identity)
        headers = [
            ("Content-Type", MEDIA_TYPE),
            ("Retry-After", str(RETRY_AFTER_S)),
            (REQUEST_ID, identity),
        ]
        start_response(f"{body['status']} {body['title']}", headers)
        return [json.dumps(body).encode() + b"\n"]
