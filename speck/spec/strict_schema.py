"""The base of all schemas of users' input: unknown fields are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import RAISE, Schema, ValidationError, fields

from speck.errors import MOST_PROBLEMS, find_similar
from speck.spec.fields import NULL


class StrictSchema(Schema):
    """Refuses unknown fields, naming the one that was probably meant."""

    class Meta:
        unknown = RAISE

    error_messages = {  # noqa: RUF012
        "type": "must be a mapping of field names to values",
        "unknown": "unknown field",
    }

    def on_bind_field(self, field_name: str, field_obj: fields.Field[Any]) -> None:
        field_obj.error_messages["required"] = "missing"
        field_obj.error_messages.setdefault("null", NULL)
        if field_obj.error_messages["null"] == "Field may not be null.":
            field_obj.error_messages["null"] = NULL

    def handle_error(self, error: ValidationError, data: Any, *, many: bool, **kwargs: Any) -> None:
        if not isinstance(error.messages, dict) or not isinstance(data, Mapping):
            return
        unknown = [key for key in data if error.messages.get(key) == ["unknown field"]]
        for key in unknown:  # last, and in the order in which they were written
            del error.messages[key]
        for key in unknown[:MOST_PROBLEMS]:
            error.messages[key] = [f"unknown field; {self._suggest(str(key))}"]

    def _suggest(self, key: str) -> str:
        names = [name for name, field in self.fields.items() if not field.dump_only]
        near = find_similar(key, names, 1, 0.7)
        return f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
