"""Why the service cannot start: asked before gunicorn runs, in a process of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

from speck.clock import SystemClock
from speck.config import Config
from speck.errors import PermanentError, StoreFullError, StoreHeldError
from speck.service.tokens import Tokens
from speck.store.leveldb import Store
from speck.store.records import Records, open_store
from speck.tls.contexts import server_context

LOCK_PATIENCE_S = 3.0
"""How long to wait for a store that another process holds, since it may be just stopping."""

_T = TypeVar("_T")


def check_start(config: Config) -> None:
    """Raises SpeckError with the reason why the service cannot start; creates a missing store.

    A full disk is no reason: the worker waits until there is space.
    """
    _check_tls(config)
    _check_address(config)
    try:
        config.home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermanentError(
            f"cannot create the folder {config.home}: {error.strerror};"
            " choose another one with SPECK_HOME"
        ) from error
    clock = SystemClock()
    try:
        store = retry_while_locked(lambda: open_store(config.store, clock))
    except StoreFullError:
        if not Store.exists(config.store):
            raise
        return
    try:
        if not config.loopback:  # only tokens need the records, which the worker parses anyway
            check_tokens(config, Tokens(Records(store, clock), clock))
    finally:
        store.close()


def check_tokens(config: Config, tokens: Tokens) -> None:
    """Raises PermanentError when others could reach a service that asks nobody for a token."""
    if not config.loopback and not tokens.any():
        raise PermanentError(
            f"cannot listen on {config.host}, past loopback, before a token exists: make one"
            " with `speck token add NAME --role admin`, or set SPECK_HOST to 127.0.0.1"
        )


def _check_address(config: Config) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        raise PermanentError(
            f"cannot listen on {bind_address(config)}: {error.strerror};"
            " choose another address with --host and --port, or SPECK_HOST and SPECK_PORT"
        ) from error


def retry_while_locked(action: Callable[[], _T]) -> _T:
    """Call `action`, and repeat it while another process holds the store."""
    until = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            return action()
        except StoreHeldError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def bind_address(config: Config) -> str:
    """Where the service listens, as gunicorn wants it."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{host}:{config.port}"


def _check_tls(config: Config) -> None:
    if config.tls_cert and config.tls_key:
        server_context(config.tls_cert, config.tls_key, config.client_ca)
    elif config.tls_cert or config.tls_key:
        present, missing = ("--tls-cert", "--tls-key")[:: 1 if config.tls_cert else -1]
        raise PermanentError(
            f"cannot serve TLS with {present} alone: add {missing}"
            f" (or SPECK_{missing.lstrip('-').replace('-', '_').upper()})"
        )
    elif config.client_ca:
        raise PermanentError(
            "cannot ask clients for certificates without TLS: --client-ca needs --tls-cert and"
            " --tls-key"
        )
