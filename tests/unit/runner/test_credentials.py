from __future__ import annotations

import os
from pathlib import Path

from speck.runner.credentials import copy_credentials, find_brokers, list_credentials

ARGS = ("--source-broker", "tcp://here", "--sink-broker", "ssl://there:8883", "--x", "tcp://other")


def test_a_program_gets_those_of_its_own_brokers(tmp_path: Path) -> None:
    site, own = tmp_path / "site", tmp_path / "own"
    site.mkdir()
    own.mkdir()
    (site / "here").write_text("user=a\npassword=1\naddress=mqtt://HERE:1883/\n")
    (site / "there").write_text("\ufeffca=there.pem\r\naddress=tcp://x:1 ssl://there\r\n")
    (site / "there.pem").write_text("authority")
    (site / "other").write_text("user=b\naddress=tcp://other\n")
    (site / "agent-token").write_text("secret")
    files = list_credentials(site, find_brokers(ARGS))
    assert sorted(files) == ["here", "there", "there.pem"]

    (own / "other").write_text("of an earlier day")
    copy_credentials(files, own, (os.getuid(), os.getgid()))
    assert sorted(file.name for file in own.iterdir()) == ["here", "there", "there.pem"]
    assert {file.stat().st_mode & 0o777 for file in own.iterdir()} == {0o400}

    (site / "here").write_text("user=a\npassword=2\naddress=tcp://here\n")
    files = list_credentials(site, find_brokers(ARGS))
    copy_credentials(files, own, (os.getuid(), os.getgid()))
    assert "password=2" in (own / "here").read_text()


def test_no_folder_means_no_credentials(tmp_path: Path) -> None:
    assert list_credentials(tmp_path / "nowhere", find_brokers(ARGS)) == {}


def test_a_broker_of_several_hosts_has_many_spellings(tmp_path: Path) -> None:
    (tmp_path / "cluster").write_text("user=a\naddress=kafka://B,a:9092/\n")
    (tmp_path / "one-of-them").write_text("user=b\naddress=kafka://a:9092\n")
    args = ("--source-broker", "kafka://a:9092,b:9092")
    assert list(list_credentials(tmp_path, find_brokers(args))) == ["cluster"]
