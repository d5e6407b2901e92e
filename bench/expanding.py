"""What is small when it is sent, and large or slow once it is parsed: see bench.overload."""

from __future__ import annotations

import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ENTRIES = 1_500_000
MIB = 1 << 20


def large_default() -> bytes:
    """A composition whose default is to be copied into every job: 432 MB in one."""
    jobs = [
        {"job_name": f"x{n}", "site": "edge-a", "source_topic": f"x{n}", "sink_topic": f"y{n}"}
        for n in range(480)
    ]
    defaults = {"entry_class": "package.Job", "job_path": "a.jar", "args": ["x" * 900_000]}
    return json.dumps({"name": "large", "defaults": defaults, "jobs": jobs}).encode()


def largest_default() -> bytes:
    """A composition of 30 kB that has just as many bytes with its default as are taken."""
    jobs = [
        {
            "job_name": f"x{n}",
            "site": "edge-a",
            "source_topic": f"x{n}",
            "sink_topic": f"y{n}",
            "state": "stopped",
        }
        for n in range(80)
    ]
    defaults = {"entry_class": "package.Job", "job_path": "a.jar", "args": ["x" * 60_000]}
    return json.dumps({"name": "largest", "defaults": defaults, "jobs": jobs}).encode()


def dense_document() -> bytes:
    """YAML of as many values as its bytes can hold."""
    return b"[" + b"a," * (MIB // 2 - 2) + b"a]"


def slow_program() -> bytes:
    """Python whose parser takes quadratic time."""
    return b'import os\nx=f"' + b"{a}" * 87_000 + b'"\n'


def large_program() -> bytes:
    """Python whose tree takes a thousand times its bytes."""
    return b"import os\n" + b"a\n" * 131_000


def decoy_archive() -> bytes:
    """A zip archive whose locator names a record of one entry, while another record, directly
    before the locator, says that there are very many."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 9, 1, *[0] * 6) + b"a"

    def record(entries: int, offset: int) -> bytes:
        sizes = entries, entries, entries * len(entry), offset
        return struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, *sizes)

    decoy = record(1, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, *[0xFFFFFFFF] * 2, 0)
    return decoy + entry * ENTRIES + record(ENTRIES, len(decoy)) + locator + end


class _Engine(BaseHTTPRequestHandler):
    """Answers each request with 32 MB of small objects."""

    protocol_version = "HTTP/1.1"
    answer = b'{"jobs":[' + b'{"a":1},' * (4 * MIB) + b"{}]}"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        try:
            self.wfile.write(self.answer)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


def begin_engine() -> str:
    """Start an engine that means no good in a thread; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"
