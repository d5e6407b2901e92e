"""What a cluster needs before an analysis can run there; what is missing is said at once."""

from __future__ import annotations

import os

from speck.analyzer.masters import YARN, is_local, is_on_loopback, is_standalone
from speck.config import Config
from speck.errors import InvalidError
from speck.metrics.dataset.storage import Storage


class SparkClusters:
    """Checks masters for the dataset in `storage`."""

    def __init__(self, config: Config, storage: Storage):
        self._storage = storage
        self._driver_host = config.spark_driver_host
        self._secret_file = config.spark_secret_file
        self._jars = config.spark_jars

    def list_arguments(self) -> list[str]:
        """What the analyzer is told of clusters, on its command line: nothing secret."""
        arguments = ["--driver-host", self._driver_host]
        arguments += ["--secret-file", str(self._secret_file)] if self._secret_file else []
        for jar in self._jars:
            arguments += ["--jars", str(jar)]
        return arguments

    def check(self, master: str) -> None:
        """Raises InvalidError for a cluster that could not authenticate, reach the driver or read
        the dataset. Whether the workers of a standalone cluster share a folder with the service
        only they know: the analysis itself finds out."""
        if is_local(master):
            return
        if is_standalone(master):
            self._check_secret(master)
        elif self._storage.is_local:
            raise InvalidError(
                f"cannot analyse at {master}: its containers cannot read {self._storage}, a folder"
                " of this machine; set SPECK_METRICS_URI to s3a://bucket/folder or hdfs://host/folder"
            )
        if master == YARN and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys():
            raise InvalidError(
                "cannot analyse at yarn: set HADOOP_CONF_DIR to the folder with the cluster's"
                " yarn-site.xml"
            )
        if not is_on_loopback(master) and is_on_loopback(f"spark://{self._driver_host}:1"):
            raise InvalidError(
                f"cannot analyse at {master}: its executors cannot reach {self._driver_host}; set"
                " SPECK_SPARK_DRIVER_HOST to this machine's address in the cluster's network"
            )

    def _check_secret(self, master: str) -> None:
        if self._secret_file is None:
            raise InvalidError(
                f"cannot analyse at {master}: the service has no secret of that cluster; write its"
                " spark.authenticate.secret into a file of mode 0600 and name it with"
                " SPECK_SPARK_SECRET_FILE"
            )
