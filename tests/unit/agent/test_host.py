"""How busy the machine is."""

from __future__ import annotations

from pathlib import Path

from speck.agent.host import HostLoad, cores, read_memory


def stat(file: Path, user: int, idle: int, iowait: int = 0, steal: int = 0) -> None:
    file.write_text(f"cpu  {user} 0 0 {idle} {iowait} 0 0 {steal} 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")


def test_the_share_is_that_between_two_calls(tmp_path: Path) -> None:
    stat(tmp_path / "stat", 1000, 1000)
    load = HostLoad(tmp_path / "stat")
    stat(tmp_path / "stat", 1030, 1060, iowait=10)
    assert load.cpu() == 0.3
    stat(tmp_path / "stat", 1130, 1060, iowait=10)
    assert load.cpu() == 1.0


def test_two_calls_at_once_say_the_same(tmp_path: Path) -> None:
    stat(tmp_path / "stat", 0, 0)
    load = HostLoad(tmp_path / "stat")
    stat(tmp_path / "stat", 50, 50)
    assert [load.cpu(), load.cpu()] == [0.5, 0.5]


def test_what_a_machine_does_not_tell_is_not_known(tmp_path: Path) -> None:
    assert HostLoad(tmp_path / "none").cpu() is None
    (tmp_path / "stat").write_text("nonsense\n")
    assert HostLoad(tmp_path / "stat").cpu() is None


def test_this_machine_tells() -> None:
    share = HostLoad().cpu()
    assert share is None or 0 <= share <= 1
    assert cores() is not None


def test_the_memory_of_the_machine_in_bytes(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:        3884360 kB\nMemFree: 1 kB\nMemAvailable:     100 kB\n")
    assert read_memory(file) == (3884360 * 1024, 102400)
    file.write_text("MemTotal: 4096 kB\nMemAvailable:\n")  # as an old kernel may say
    assert read_memory(file) == (4 << 20, None)
    assert read_memory(tmp_path / "none") == (None, None)


def test_this_machine_has_more_memory_than_is_available() -> None:
    total, available = read_memory()
    assert total is not None
    assert available is not None
    assert total > available > 0
