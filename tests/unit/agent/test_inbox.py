from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from speck.agent.folder import StateFolder
from speck.agent.framing import CorruptError, Stream
from speck.agent.inbox import Arrival, GapError, Inbox
from speck.agent.state_files import StateFiles
from speck.errors import PermanentError, TransientError


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(StateFolder(tmp_path / "state"))


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    sent = tmp_path / "sent"
    sent.mkdir()
    (sent / "_metadata").write_bytes(b"state" * 100)
    with StateFiles(sent) as files:
        stream = Stream(files)
        return stream.read(0, stream.size)


def begin(inbox: Inbox, secret: str = "s") -> Arrival:
    arrival = inbox.begin("t-1", "counter", secret)
    assert isinstance(arrival, Arrival)
    return arrival


def test_pieces_become_a_state_at_once_and_whole(
    inbox: Inbox, whole: bytes, tmp_path: Path
) -> None:
    arrival = begin(inbox)
    final = tmp_path / "state/carried/counter/t-1"
    for at in range(0, len(whole), 100):
        assert not final.exists()
        inbox.append(arrival, at, len(whole), whole[at : at + 100])
    assert arrival.complete
    assert inbox.finish(arrival) == final
    assert [f.name for f in final.iterdir()] == ["_metadata"]
    assert list((tmp_path / "state/carried/.arriving").iterdir()) == []
    assert inbox.begin("t-1", "counter", "other") == final
    assert inbox.find("t-1", "s") is None


def test_pieces_out_of_order_are_told_where_to_go_on(inbox: Inbox, whole: bytes) -> None:
    arrival = begin(inbox)
    inbox.append(arrival, 0, len(whole), whole[:100])
    for offset, total in ((0, len(whole)), (101, len(whole)), (100, len(whole) + 1)):
        with pytest.raises(GapError) as error:
            inbox.append(arrival, offset, total, b"x")
        assert error.value.received == 100
    with pytest.raises(PermanentError, match="more bytes than were announced"):
        inbox.append(arrival, 100, len(whole), whole)


def test_what_has_come_survives_the_agent(inbox: Inbox, whole: bytes, tmp_path: Path) -> None:
    inbox.append(begin(inbox), 0, len(whole), whole[:300])
    again = Inbox(StateFolder(tmp_path / "state"))
    arrival = begin(again)
    assert arrival.received == 300
    again.append(arrival, 300, len(whole), whole[300:])
    assert (again.finish(arrival) / "_metadata").read_bytes() == b"state" * 100


def test_all_of_it_was_there_when_the_agent_died(
    inbox: Inbox, whole: bytes, tmp_path: Path
) -> None:
    inbox.append(begin(inbox), 0, len(whole), whole)
    again = Inbox(StateFolder(tmp_path / "state"))
    arrival = again.begin("t-1", "counter", "s", total=len(whole))
    assert isinstance(arrival, Arrival)
    assert arrival.complete


def test_damage_makes_it_begin_anew(inbox: Inbox, whole: bytes, tmp_path: Path) -> None:
    arrival = begin(inbox)
    inbox.append(arrival, 0, len(whole), whole[:-200] + bytes(200))
    with pytest.raises(CorruptError):
        inbox.finish(arrival)
    assert (arrival.received, arrival.complete) == (0, False)
    assert not (tmp_path / "state/carried/counter").exists()
    inbox.append(arrival, 0, len(whole), whole)
    assert inbox.finish(arrival).is_dir()


def test_only_its_secret_opens_an_arrival(inbox: Inbox) -> None:
    arrival = begin(inbox)
    assert inbox.find("t-1", "s") is arrival
    assert inbox.find("t-1", "") is None
    assert inbox.find("t-2", "s") is None
    inbox.end(arrival)
    assert inbox.find("t-1", "s") is None


def test_a_piece_for_an_arrival_that_was_begun_again_is_refused(inbox: Inbox, whole: bytes) -> None:
    old = begin(inbox)
    new = begin(inbox, "other")
    with pytest.raises(GapError):
        inbox.append(old, 0, len(whole), whole[:10])
    inbox.append(new, 0, len(whole), whole[:10])


@pytest.mark.parametrize(("transfer", "job"), [("../x", "j"), ("t", "../j"), (".x", "j"), ("", "")])
def test_names_lead_nowhere_else(inbox: Inbox, transfer: str, job: str) -> None:
    with pytest.raises(PermanentError, match="invalid names"):
        inbox.begin(transfer, job, "s")


def test_a_full_disk_is_told_before_anything_is_written(inbox: Inbox) -> None:
    arrival = begin(inbox)
    with pytest.raises(TransientError, match="free some space there"):
        inbox.append(arrival, 0, 1 << 60, b"1")
    assert not arrival.part.exists()


def test_so_it_is_when_the_length_was_known_before(inbox: Inbox) -> None:
    arrival = inbox.begin("t-1", "counter", "s", total=1 << 60)
    assert isinstance(arrival, Arrival)
    with pytest.raises(TransientError, match="free some space there"):
        inbox.append(arrival, 0, 1 << 60, b"1")


def test_a_disk_that_tells_no_size_takes_what_comes(
    inbox: Inbox, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=0, used=0, free=0))
    arrival = begin(inbox)
    inbox.append(arrival, 0, len(whole), whole)
    assert inbox.finish(arrival).is_dir()


def test_only_what_is_old_is_cleared(inbox: Inbox, whole: bytes, tmp_path: Path) -> None:
    inbox.append(begin(inbox), 0, len(whole), whole[:10])
    arriving = tmp_path / "state/carried/.arriving"
    (arriving / "t-0.new").mkdir()
    (arriving / "t-2").write_bytes(b"x")
    long_ago = time.time() - 48 * 3600
    for name in ("t-0.new", "t-2"):
        os.utime(arriving / name, (long_ago, long_ago))
    inbox.clear_old()
    assert [path.name for path in arriving.iterdir()] == ["t-1"]
