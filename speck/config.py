"""Settings of the service, from the environment (`SPECK_*`); the CLI's options override them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Config:
    """The service's folders, its address and its intervals.

    `home` holds store/, artifacts/, credentials/, audit/ and metrics/. A `job_path` must lie in one
    of `jar_folders`. `timeout_s` bounds each call to an engine or broker, `main_timeout_s` one
    that runs a job's `main`. The service polls all sites every `watch_s` seconds (0: never, and
    nothing is repaired). It samples their metrics every `collect_s` seconds (0: never) and keeps
    them for `metrics_days` days (0: for ever). Only if it is for trials, `simulated`, may sites be
    registered that exist in its memory alone.
    With `tls_cert` and `tls_key` (PEM files) the service speaks TLS only; with `client_ca` a
    client must also show a certificate that one of these authorities signed.
    """

    home: Path
    host: str = "127.0.0.1"
    port: int = 8080
    jar_folders: tuple[Path, ...] = ()
    threads: int = 32
    timeout_s: float = 10.0
    watch_s: float = 5.0
    collect_s: float = 5.0
    metrics_days: int = 30
    simulated: bool = False
    max_body: int = 8 * 1024 * 1024
    max_artifact: int = 512 * 1024 * 1024
    main_timeout_s: float = 60.0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None

    @property
    def store(self) -> Path:
        return self.home / "store"

    @property
    def artifacts(self) -> Path:
        return self.home / "artifacts"

    @property
    def credentials(self) -> Path:
        return self.home / "credentials"

    @property
    def audit(self) -> Path:
        return self.home / "audit"

    @property
    def last_uses(self) -> Path:
        """The file that holds when each token was last used."""
        return self.home / "tokens-last-used.json"

    @property
    def metrics(self) -> Path:
        return self.home / "metrics"

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can reach the service."""
        return self.host in ("127.0.0.1", "::1", "localhost") or self.host.startswith("127.")

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Config:
        """Read SPECK_HOME, SPECK_HOST, SPECK_PORT, SPECK_JARS (folders joined by `:`),
        SPECK_THREADS, SPECK_TIMEOUT, SPECK_MAIN_TIMEOUT, SPECK_WATCH_S, SPECK_METRICS_S,
        SPECK_METRICS_DAYS, SPECK_SIMULATED (1 or 0), SPECK_TLS_CERT, SPECK_TLS_KEY and
        SPECK_CLIENT_CA. Raises ValueError if a number cannot be read."""
        env = os.environ if env is None else env
        jars = tuple(Path(p).resolve() for p in env.get("SPECK_JARS", "").split(":") if p)
        try:
            return cls(
                home=Path(env.get("SPECK_HOME", ".speck")).resolve(),
                host=env.get("SPECK_HOST", "127.0.0.1"),
                port=int(env.get("SPECK_PORT", "8080")),
                jar_folders=jars,
                threads=int(env.get("SPECK_THREADS", "32")),
                timeout_s=float(env.get("SPECK_TIMEOUT", "10")),
                main_timeout_s=float(env.get("SPECK_MAIN_TIMEOUT", "60")),
                watch_s=float(env.get("SPECK_WATCH_S", "5")),
                collect_s=float(env.get("SPECK_METRICS_S", "5")),
                metrics_days=int(env.get("SPECK_METRICS_DAYS", "30")),
                simulated=env.get("SPECK_SIMULATED", "0") == "1",
                tls_cert=_file(env.get("SPECK_TLS_CERT")),
                tls_key=_file(env.get("SPECK_TLS_KEY")),
                client_ca=_file(env.get("SPECK_CLIENT_CA")),
            )
        except ValueError as error:
            raise ValueError(
                "cannot read SPECK_PORT, SPECK_THREADS, SPECK_TIMEOUT, SPECK_MAIN_TIMEOUT,"
                f" SPECK_WATCH_S, SPECK_METRICS_S or SPECK_METRICS_DAYS: {error}"
            ) from error


def _file(path: str | None) -> Path | None:
    # not resolved: a link may be turned to another file, and the file is loaded again then
    return Path(path).absolute() if path else None
