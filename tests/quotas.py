"""Whether the kernel's quotas of the CPU can be had, and the control groups that hold them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speck.errors import PermanentError
from speck.fog.cgroups import Quotas, find_controller


def why_no_quotas() -> str | None:
    """Why they cannot be had."""
    if os.geteuid() != 0:
        return "only root may set CPU quotas"
    probe = Quotas(Path("/probe"))
    try:
        probe.hold("probe", 0.5)
    except PermanentError as error:
        return str(error)
    finally:
        probe.release()
    return None


def may_set_quotas() -> bool:
    return why_no_quotas() is None


def needs_quotas() -> None:
    """Skip where the kernel's quota cannot be had; the sentence is tested then, instead."""
    if (why := why_no_quotas()) is not None:
        pytest.skip(why)


def groups(folder: Path) -> list[Path]:
    """The control groups of a fog."""
    root = find_controller().root
    return list(root.glob(f"{Quotas(folder)._prefix}*"))
