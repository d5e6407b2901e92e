"""`speck serve`: the application in gunicorn, one process with threads.

LevelDB allows one process, and a fork with an open store corrupts it. So there is one worker,
the store is opened inside it and closed before it ends, and nothing that would start a second
worker (SIGHUP, SIGTTIN, SIGUSR2) is obeyed.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]
from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]

from speck import failpoints
from speck.api.app import create_app
from speck.api.context import EXTENSION, Context
from speck.api.server.memory import IdleMemory, limit_idle_memory
from speck.api.server.start_check import bind_address, check_start, check_tokens, retry_while_locked
from speck.api.server.unavailable_app import UnavailableApp
from speck.api.server.worker import ConnectionWorker
from speck.clock import SystemClock
from speck.config import Config
from speck.errors import SpeckError, StoreWriteError
from speck.model.plain_text import PlainFormatter
from speck.service import Service

IN_FLIGHT_S = 5.0
"""How long requests may continue after SIGTERM; those that wait for a change end with it."""

STOP_S = 60.0
"""How long the worker may take to stop before it is killed. A running operation may take 30 s."""

_PR_SET_PDEATHSIG = 1

_log = logging.getLogger("speck.api.server")


def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT. Ends the process: status 0, or 1 with one sentence."""
    limit_idle_memory()
    try:
        # Check in a separate process: this one will be forked and must not open the store.
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as aside:
            aside.submit(check_start, config).result()
    except SpeckError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    _Server(config).run()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


class _Server(BaseApplication):  # type: ignore[misc]
    """gunicorn's settings, and the service between the worker's start and its end."""

    def __init__(self, config: Config):
        self._config = config
        self._service: Service | None = None
        super().__init__()

    def load_config(self) -> None:
        """One worker with threads; everything that could disturb it is off."""
        settings: dict[str, Any] = {
            "bind": [bind_address(self._config)],
            "workers": 1,
            "worker_class": ConnectionWorker,
            "threads": self._config.threads,
            "preload_app": False,
            "max_requests": 0,
            "control_socket_disable": True,
            "timeout": 120,
            "graceful_timeout": int(STOP_S),
            "certfile": _text(self._config.tls_cert),
            "keyfile": _text(self._config.tls_key),
            "ca_certs": _text(self._config.client_ca),
            "loglevel": "warning",
            "forwarded_allow_ips": "",
            "forwarder_headers": "",
            "secure_scheme_headers": {},
            "post_fork": _prepare_worker,
            "post_worker_init": self._ready,
            "worker_exit": self._close,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> UnavailableApp:
        """Called in the worker: open the store there."""
        _log_to_stderr()
        standby = UnavailableApp(self._open)
        try:
            failpoints.arm_from(os.environ)
            standby.start()
        except SpeckError as error:
            print(error, file=sys.stderr)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        return standby

    def _open(self) -> Flask:
        service = retry_while_locked(
            lambda: Service(self._config, on_store_failure=_restart_worker)
        )
        try:
            check_tokens(self._config, service.tokens)
        except SpeckError:
            service.close()
            raise
        self._service = service
        app = create_app(service)
        service.watch.start()
        service.requirements.start()
        service.autopilots.start()
        service.sampler.start()
        service.collector.start()
        IdleMemory(SystemClock()).start()
        threading.Thread(target=_end_changes, args=(app, service), name="stop", daemon=True).start()
        return app

    def run(self) -> None:
        """Serve; ends the process."""
        _Master(self).run()

    def _ready(self, worker: Any) -> None:
        gc.collect()
        gc.freeze()  # what is loaded now stays: collecting it would stop every thread
        host, port = worker.sockets[0].getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        scheme = "https" if self._config.tls_cert else "http"
        print(f"speck serves at {scheme}://{address}:{port}", file=sys.stderr, flush=True)
        if scheme == "http" and not self._config.loopback:
            _log.warning(
                "serves past loopback without TLS: tokens can be read on their way;"
                " use --tls-cert and --tls-key, or a proxy that speaks TLS"
            )

    def _close(self, server: Any, worker: Any) -> None:
        if self._service is not None:
            self._service.close()


def _prepare_worker(server: Any, worker: Any) -> None:
    """Make the worker end with its master: otherwise it would keep the port and the store from
    the next server. Its time limit for requests is shorter than the master's for the worker."""
    end_with_parent(signal.SIGKILL)
    if os.getppid() != worker.ppid:
        os._exit(1)  # the master ended before prctl took effect
    worker.cfg.set("graceful_timeout", int(IN_FLIGHT_S))


def end_with_parent(number: signal.Signals) -> None:
    """Let the kernel send this process a signal when its parent ends (Linux only)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _restart_worker(error: StoreWriteError) -> None:
    """End this worker after its current responses; the master starts the next one."""
    _log.error("%s; restarting the worker from the stored state", error)
    os.kill(os.getpid(), signal.SIGTERM)


def _end_changes(app: Flask, service: Service) -> None:
    """On SIGTERM bring changes to their safe point at once, since requests wait for them."""
    _context(app).stopping.wait()
    service.runner.close()


def _context(app: Flask) -> Context:
    return cast(Context, app.extensions[EXTENSION])


class _Master(Arbiter):  # type: ignore[misc]
    """Never runs two workers, and ends with status 1 when it cannot go on."""

    def _ignore(self) -> None:
        self.log.warning("ignored a signal to reload: restart speck instead")

    handle_hup = handle_ttin = handle_ttou = handle_usr2 = handle_winch = _ignore

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """End; the worker has logged the reason."""
        super().halt(reason, 1 if exit_status else 0)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("speck")
    log.handlers[:] = [handler]
    logging.getLogger().handlers[:] = [handler]  # binders and libraries
    log.setLevel(os.environ.get("SPECK_LOG", "INFO").upper())
    log.propagate = False
