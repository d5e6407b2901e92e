"""Serves a service's application on a loopback port."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from werkzeug.serving import make_server

from speck.api.app import create_app
from speck.service import Service


@contextmanager
def served(service: Service) -> Iterator[str]:
    """The address of its application, on a free port."""
    listening = make_server("127.0.0.1", 0, create_app(service), threaded=True)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
