"""Puts the third party's binders (tests/third_party) on the path, and takes them off again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speck.binding import addresses, registry

FOLDER = Path(__file__).parent / "third_party"


def forget_kinds() -> None:
    """Have speck look for the installed binders anew."""
    for cached in (
        *(registry.find_binder, registry.kinds),
        *(addresses.merged_rules, addresses.normalise_address),
    ):
        cached.cache_clear()


@contextmanager
def third_party() -> Iterator[None]:
    """Its kinds are `loom` (engines) and `canal` (brokers)."""
    sys.path.insert(0, str(FOLDER))
    importlib.invalidate_caches()
    forget_kinds()
    try:
        yield
    finally:
        sys.path.remove(str(FOLDER))
        forget_kinds()


def canals() -> Any:
    """All canals, by address."""
    return importlib.import_module("loomcanal.canal").CANALS
