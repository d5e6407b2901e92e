"""Starts a program: its shim, command, environment, log and credentials."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from speck.runner.claims import Claim
from speck.runner.credentials import copy_credentials, find_brokers, list_credentials
from speck.runner.files import delete_folder, open_folder, replace_file, write_json
from speck.runner.owners import (
    OWN,
    SCRATCH,
    find_owner,
    is_another,
    list_users,
    make_own,
    make_readable,
    make_run,
    readable_by,
)
from speck.runner.settings import Settings
from speck.runner.spark import describe_spark

_LAUNCH = Path(__file__).with_name("launch.py").read_text()
_SHIM = """
read -r go || exit 0
[ "$go" = go ] || exit 0
status=$1; shift
outside=
trap 'outside=outside' TERM INT HUP
"$@" </dev/null
echo "$? $outside" >"$status"
"""
"""The parent of a program, of some 100 kB: it waits until its start is recorded, and writes down
the program's exit status, which only a parent is told, also where the runner is gone. The runner
never sends it a signal: if it gets one, the machine is being shut down, and the program has not
ended by itself."""

CREDENTIALS = "run/credentials"
_START = "run/start.json"
_KEPT = ("TZ", "SPECK_MQTT_VIA")
"""What a program sees of the runner's environment."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a program; `number` counts them."""

    folder: Path
    claim: Claim
    settings: Settings
    number: int

    def spawn(self, lease: int, log: FileIO) -> subprocess.Popen[bytes]:
        """Start the shim, which waits for `let_go`. Raises OSError."""
        owner = find_owner(self.folder)
        if owner is None:
            raise FileNotFoundError(f"{self.folder / OWN} is gone")
        self._write_start(owner)
        uid, gid = owner
        is_other, shared = is_another(owner), self.settings.shared_gid
        return subprocess.Popen(
            ["/bin/sh", "-c", _SHIM, "speck-program", *self._command()],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=self.folder / "state",
            env=self._environment(),
            pass_fds=(lease,),
            start_new_session=True,
            umask=0o007,
            user=uid if is_other else None,
            group=gid if is_other else None,
            extra_groups=[gid for gid in [shared] if gid is not None] if is_other else None,
        )

    def _write_start(self, owner: tuple[int, int]) -> None:
        for old in (self.folder / OWN).glob("exit.*"):
            with suppress(IsADirectoryError):
                old.unlink()
        about = {"artifact": str(self.folder / "artifact"), "entry": self.claim.entry}
        start = {**about, "args": self.claim.args}
        mode, readers = readable_by(owner)
        write_json(self.folder / _START, start, mode=mode, owner=readers, durable=False)
        renew_credentials(self.folder, self.claim, self.settings)
        if self.claim.has_spark:  # what a killed one has left there is of no use
            delete_folder(self.folder / SCRATCH)
            make_own(self.folder / SCRATCH, owner)

    def _command(self) -> Sequence[str]:
        exit_file = str(self.folder / OWN / f"exit.{self.number}")
        unpacked = self.folder / "program"
        if unpacked.is_dir():
            return [exit_file, str(unpacked / self.claim.entry), *self.claim.args]
        start = str(self.folder / _START)
        return [exit_file, self.settings.python, "-u", "-P", "-c", _LAUNCH, start]

    def _environment(self) -> Mapping[str, str]:
        own = str(self.folder / OWN)
        return {
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": own,
            "TMPDIR": own,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
            "MALLOC_ARENA_MAX": "2",
            "SPECK_STATE_DIR": str(self.folder / "state"),
            "SPECK_REPORT": f"{own}/report.json",
            "SPECK_REQUEST": str(self.folder / "request"),
            "SPECK_START": str(self.number),
            "SPECK_CREDENTIALS_DIR": str(self.folder / CREDENTIALS),
            **self._describe_spark(),
        }

    def _describe_spark(self) -> Mapping[str, str]:
        jar, settings = self.settings.spark_jar, self.settings
        if not self.claim.has_spark or jar is None:
            return {}
        memory_mb = self.claim.find_memory_mb(settings) or settings.spark_memory_mb
        return describe_spark(
            jar,
            self.folder,
            settings.python,
            memory_mb,
            self.claim.width,
            settings.spark_master,
            settings.spark_secret_file,
        )


def find_missing(folder: Path, settings: Settings) -> str | None:
    """What a program cannot start without and has not, in words; None: nothing."""
    if not (folder / "state").is_dir():
        return "its state"
    if settings.uids is None and not list_users(folder):
        make_run(folder, (os.geteuid(), os.getegid()))  # programs can delete it then
    return None if find_owner(folder) is not None else f"its folder {OWN}"


def open_log(folder: Path) -> FileIO:
    """The log of a program, to append to. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return FileIO(os.open(folder / "log", flags, 0o640), "ab")


def write_request(folder: Path, number: int) -> None:
    """Tell a program which checkpoint is asked for; any user may read the number. Raises
    OSError."""
    with open_folder(folder) as inside:
        replace_file(inside, "request", str(number).encode(), mode=0o644, durable=False)


def let_go(shim: subprocess.Popen[bytes]) -> None:
    """Let a shim start its program."""
    assert shim.stdin is not None
    with suppress(BrokenPipeError), shim.stdin as pipe:
        pipe.write(b"go\n")


def give_up(shim: subprocess.Popen[bytes]) -> None:
    """End a shim that has not started its program."""
    assert shim.stdin is not None
    shim.stdin.close()
    shim.wait()


def renew_credentials(folder: Path, claim: Claim, settings: Settings) -> None:
    """Give a program the credentials of its brokers as they are now; there may be none."""
    target, owner = folder / CREDENTIALS, find_owner(folder)
    if owner is None:  # an older runner has started it
        return
    make_readable(target, owner)
    if settings.credentials is not None:
        files = list_credentials(settings.credentials, find_brokers(claim.args))
        copy_credentials(files, target, owner)
