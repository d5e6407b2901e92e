"""Shapes of what a restored service finds."""

from __future__ import annotations

from speck.api.shapes.base import one_of
from speck.api.shapes.records import record_shape
from speck.service.restored import Adopted, RestoredReport

RestoredShape = record_shape(RestoredReport, "RestoredShape", state=one_of(("normal", "restored")))
AdoptedShape = record_shape(Adopted, "AdoptedShape")
