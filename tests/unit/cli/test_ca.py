"""`speck ca` without a service."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.conftest import Run


def test_a_site_s_certificate(alone: Run, tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    options = ("--folder", str(folder), "-o", "json")
    assert alone("ca", "init", *options).exit_code == 0
    issued = alone("ca", "issue", "edge-a", "--host", "10.0.0.7", "--keystore", *options)
    assert json.loads(issued.stdout)["certificates"][0]["hosts"] == ["10.0.0.7"]
    assert {file.name for file in folder.iterdir()} == {
        *("ca.crt", "ca.key", "ca.p12"),
        *("edge-a.crt", "edge-a.key", "edge-a.p12"),
    }
    again = alone("ca", "issue", "edge-a", "--folder", str(folder))
    assert again.exit_code == 1
    assert "--force replaces it" in again.stderr


def test_an_end_within_30_days_is_a_warning(alone: Run, tmp_path: Path) -> None:
    alone("ca", "init", "--folder", str(tmp_path))
    issue = ("ca", "issue", "edge-a", "--host", "pi", "--folder", str(tmp_path))
    assert "warning" not in alone(*issue, "--days", "40").stderr
    alone(*issue, "--days", "29", "--force")
    listed = alone("ca", "list", "--folder", str(tmp_path))
    renewal = f"speck ca issue edge-a --host pi --force --folder {tmp_path}"
    assert f"renew it: {renewal}" in listed.stderr


def test_a_truststore_of_few(alone: Run, tmp_path: Path) -> None:
    alone("ca", "init", "--folder", str(tmp_path))
    alone("ca", "issue", "service", "--client", "--folder", str(tmp_path))
    file = tmp_path / "few.p12"
    assert alone("ca", "truststore", str(file), str(tmp_path / "service.crt")).exit_code == 0
    assert file.stat().st_size > 0
