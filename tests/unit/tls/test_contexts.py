"""Certificates in files and their renewal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speck.tls.contexts import TlsFiles
from tests.certificates import Authority


def test_changed_files_are_loaded_and_unusable_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority.create(tmp_path / "ca")
    cert, key = authority.issue("service", "IP:127.0.0.1")
    tls = TlsFiles.of_server(cert, key)
    first = tls.context()
    tls.context()
    assert tls.context() is first
    newer_cert, newer_key = authority.issue("newer", "IP:127.0.0.1")
    os.replace(newer_cert, cert)
    for _ in range(3):
        tls.context()
    assert caplog.text.count("the previous files stay in use") == 1
    assert tls.context() is first, "the key is still that of the old certificate"
    os.replace(newer_key, key)
    tls.context()
    assert tls.context() is not first
    cert.unlink()
    second = tls.context()
    tls.context()
    assert tls.context() is second
