"""An S3 server on this machine (moto), with one bucket."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

BUCKET = "metrics"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """The environment variables with which clients find it."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        with urlopen(Request(f"{url}/{BUCKET}", method="PUT")):
            pass
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "access",
            "AWS_SECRET_ACCESS_KEY": "secret-of-s3",
            "AWS_REGION": "us-east-1",
        }
        with urlopen(Request(f"{url}/moto-api/reset", method="POST")):
            pass  # what it holds would outlive it in this process
    finally:
        server.stop()
