"""The shape of what was forgotten by force."""

from __future__ import annotations

from speck.api.shapes.records import record_shape
from speck.service.forgetting import Forgotten

ForgottenShape = record_shape(Forgotten, "ForgottenShape")
