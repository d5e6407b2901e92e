"""Datasets without samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from speck.analyzer.reading import find_newest
from speck.errors import NotFoundError
from speck.metrics.dataset.local import LocalStorage


@pytest.mark.parametrize(("composition", "of"), [(None, ""), ("c", " of composition 'c'")])
def test_a_dataset_without_samples_is_refused_and_says_what_to_do(
    tmp_path: Path, composition: str | None, of: str
) -> None:
    refusal = f"holds no samples of tasks{of}; let the service collect metrics for a while"
    with pytest.raises(NotFoundError, match=refusal):
        find_newest(LocalStorage(tmp_path), composition)
