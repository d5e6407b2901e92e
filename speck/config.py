"""Settings of the service, from the environment (`SPECK_*`); the CLI's options override them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TypeVar

from speck.model.link_operations import DRAIN_LIMIT_S

_T = TypeVar("_T")


def count_pollers() -> int:
    """As many as there are cores, less one for the service, and at least one."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


@dataclass(frozen=True, slots=True)
class Config:
    """The service's folders, its address and its intervals.

    `home` holds store/, artifacts/, credentials/, audit/ and metrics/. A `job_path` must lie in one
    of `jar_folders`. `timeout_s` bounds each call to an engine or broker, `main_timeout_s` one
    that runs a job's `main`. The service polls all sites every `watch_s` seconds (0: never, and
    nothing is repaired). It samples their metrics every `collect_s` seconds (0: never) and keeps
    them for `metrics_days` days (0: for ever) at `metrics_uri` (`file:`, `s3a:` or `hdfs:`; empty:
    in the home). Only if it is for trials, `simulated`, may sites be
    registered that exist in its memory alone.

    With `tls_cert` and `tls_key` (PEM files) the service speaks TLS only; with `client_ca` a
    client must also show a certificate that one of these authorities signed.

    A site's own token may register addresses in `site_networks` and a `state_uri` below one of
    `site_state_uris`; with neither it keeps what an administrator registered. Deployers may give
    outside readers client ids that match one of `output_client_ids`.

    Analyses run at one of `spark_masters` (the first by default): `local[n]`, which allows fewer
    threads too, `spark://host:port`, `yarn` or `k8s://host:port`, each also as `NAME=master`.
    Executors of a cluster connect to the driver at `spark_driver_host`; `spark_secret_file` holds
    a standalone cluster's `spark.authenticate.secret`. `spark_jars` are jars, or folders of jars,
    that Spark needs besides its own. The Spark application, whose heap has `spark_memory` bytes,
    stays up for `spark_idle_s` seconds after an analysis; with `analyzer_warm` it starts as soon as
    a first job runs (not by itself in a service that another program embeds). Jobs are moved only
    if that saves as many bytes within `move_horizon_s` seconds as it costs.

    A change that may drop queues drains each reader for at most `drain_limit_s` seconds, unless it
    was requested with another limit.

    Artifacts may take `artifact_quota` bytes, those that one token has sent `artifact_token_quota`.
    One that nothing names is deleted when it is older than `artifact_grace_s` seconds (0: never).
    A composition may have `max_jobs` jobs. From `poller_sites` sites on, `pollers` processes poll
    them (0: the service itself does).
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
    metrics_uri: str = ""
    simulated: bool = False
    max_body: int = 8 * 1024 * 1024
    max_artifact: int = 512 * 1024 * 1024
    max_jobs: int = 10_000
    pollers: int = field(default_factory=count_pollers)
    poller_sites: int = 100
    site_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    site_state_uris: tuple[str, ...] = ()
    output_client_ids: tuple[str, ...] = ()
    spark_masters: tuple[str, ...] = ("local[*]",)
    spark_driver_host: str = "127.0.0.1"
    spark_secret_file: Path | None = None
    spark_jars: tuple[Path, ...] = ()
    spark_memory: int = 1024**3
    spark_idle_s: float = 900.0
    analyzer_warm: bool = False
    move_horizon_s: float = 3600.0
    drain_limit_s: float = DRAIN_LIMIT_S
    artifact_quota: int = 10 * 1024**3
    artifact_token_quota: int = 2 * 1024**3
    artifact_grace_s: float = 86400.0
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
        """The dataset's folder; of a dataset elsewhere, what this machine keeps for it."""
        return self.home / "metrics"

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can reach the service."""
        return self.host in ("127.0.0.1", "::1", "localhost") or self.host.startswith("127.")

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Config:
        """Read SPECK_HOME, SPECK_HOST, SPECK_PORT, SPECK_JARS (folders joined by `:`),
        SPECK_THREADS, SPECK_TIMEOUT, SPECK_MAIN_TIMEOUT, SPECK_WATCH_S, SPECK_METRICS_S,
        SPECK_METRICS_DAYS, SPECK_METRICS_URI, SPECK_SIMULATED and SPECK_ANALYZER_WARM (1 or
        0), SPECK_TLS_CERT, SPECK_TLS_KEY, SPECK_CLIENT_CA, and, as lists with commas,
        SPECK_SITE_NETWORKS,
        SPECK_SITE_STATE_URIS, SPECK_OUTPUT_CLIENT_IDS, SPECK_SPARK_JARS and
        SPECK_SPARK_MASTERS;
        SPECK_SPARK_DRIVER_HOST, SPECK_SPARK_SECRET_FILE, SPECK_SPARK_IDLE_S, SPECK_MOVE_HORIZON_S,
        SPECK_DRAIN_LIMIT_S;
        in bytes, or with K, M or G, SPECK_SPARK_MEMORY, SPECK_ARTIFACT_QUOTA and
        SPECK_ARTIFACT_TOKEN_QUOTA;
        SPECK_ARTIFACT_GRACE_S, SPECK_MAX_JOBS, SPECK_POLLERS, SPECK_POLLER_SITES. Raises
        ValueError if one cannot be read."""
        env = os.environ if env is None else env
        jars = tuple(Path(p).resolve() for p in env.get("SPECK_JARS", "").split(":") if p)
        secret = env.get("SPECK_SPARK_SECRET_FILE")
        return cls(
            home=Path(env.get("SPECK_HOME", ".speck")).resolve(),
            host=env.get("SPECK_HOST", "127.0.0.1"),
            port=_read(env, "SPECK_PORT", int, "8080"),
            jar_folders=jars,
            threads=_read(env, "SPECK_THREADS", int, "32"),
            timeout_s=_read(env, "SPECK_TIMEOUT", float, "10"),
            main_timeout_s=_read(env, "SPECK_MAIN_TIMEOUT", float, "60"),
            watch_s=_read(env, "SPECK_WATCH_S", float, "5"),
            collect_s=_read(env, "SPECK_METRICS_S", float, "5"),
            metrics_days=_read(env, "SPECK_METRICS_DAYS", int, "30"),
            metrics_uri=_read(env, "SPECK_METRICS_URI", _read_uri, ""),
            simulated=env.get("SPECK_SIMULATED", "0") == "1",
            tls_cert=_file(env.get("SPECK_TLS_CERT")),
            tls_key=_file(env.get("SPECK_TLS_KEY")),
            client_ca=_file(env.get("SPECK_CLIENT_CA")),
            site_networks=_read_list(env, "SPECK_SITE_NETWORKS", ip_network),
            site_state_uris=_read_list(env, "SPECK_SITE_STATE_URIS", str),
            output_client_ids=_read_list(env, "SPECK_OUTPUT_CLIENT_IDS", str),
            spark_masters=_read_list(env, "SPECK_SPARK_MASTERS", str) or ("local[*]",),
            spark_driver_host=env.get("SPECK_SPARK_DRIVER_HOST", "127.0.0.1"),
            spark_secret_file=Path(secret).resolve() if secret else None,
            spark_jars=_read_list(env, "SPECK_SPARK_JARS", _read_path),
            spark_memory=_read(env, "SPECK_SPARK_MEMORY", _read_bytes, "1G"),
            analyzer_warm=env.get("SPECK_ANALYZER_WARM", "1") == "1",
            spark_idle_s=_read(env, "SPECK_SPARK_IDLE_S", float, "900"),
            move_horizon_s=_read(env, "SPECK_MOVE_HORIZON_S", _read_positive, "3600"),
            drain_limit_s=_read(env, "SPECK_DRAIN_LIMIT_S", _read_limit, str(DRAIN_LIMIT_S)),
            pollers=_read(env, "SPECK_POLLERS", int, str(count_pollers())),
            poller_sites=_read(env, "SPECK_POLLER_SITES", int, "100"),
            max_jobs=_read(env, "SPECK_MAX_JOBS", int, "10000"),
            artifact_quota=_read(env, "SPECK_ARTIFACT_QUOTA", _read_bytes, "10G"),
            artifact_token_quota=_read(env, "SPECK_ARTIFACT_TOKEN_QUOTA", _read_bytes, "2G"),
            artifact_grace_s=_read(env, "SPECK_ARTIFACT_GRACE_S", float, "86400"),
        )


def _file(path: str | None) -> Path | None:
    # not resolved: a link may be turned to another file, and the file is loaded again then
    return Path(path).absolute() if path else None


def _read(env: Mapping[str, str], name: str, kind: Callable[[str], _T], default: str) -> _T:
    value = env.get(name, default)
    try:
        return kind(value)
    except ValueError as error:
        raise ValueError(f"cannot read {name}: {error}") from error


def _read_positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(f"{text!r} is not a positive number")
    return value


def _read_limit(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r} is not a number of seconds, 0 or more")
    return value


def _read_list(env: Mapping[str, str], name: str, kind: Callable[[str], _T]) -> tuple[_T, ...]:
    """The parts between commas."""

    def read(value: str) -> tuple[_T, ...]:
        return tuple(kind(part.strip()) for part in value.split(",") if part.strip())

    return _read(env, name, read, "")


def _read_path(text: str) -> Path:
    return Path(text).resolve()


def _read_uri(text: str) -> str:
    if text and not re.match(r"(file:/|s3a://.|hdfs://.)", text):
        raise ValueError(
            f"{text!r} is not file:///folder, s3a://bucket/folder or hdfs://host/folder"
        )
    return text


def _read_bytes(text: str) -> int:
    """`500M` is 500 * 1024**2."""
    factor = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:].upper())
    return int(text[:-1]) * factor if factor else int(text)
