"""Serves a service's application on a loopback port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from werkzeug.serving import make_server

from speck.api.app import create_app
from speck.service import Service
from tests.serving import serving


@contextmanager
def served(service: Service) -> Iterator[str]:
    """The address of its application, on a free port."""
    listening = make_server("127.0.0.1", 0, create_app(service), threaded=True)
    with serving(listening):
        yield f"http://127.0.0.1:{listening.server_port}"
