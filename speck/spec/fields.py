"""Strict marshmallow fields; their messages say how to correct a fault."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

from marshmallow import ValidationError, fields
from marshmallow.validate import Range

from speck.binding import BROKERS, ENGINES, any_topic_fault, merged_rules
from speck.errors import MOST_PROBLEMS, suggest
from speck.model.addresses import AddressError, SecretsInAddressError
from speck.model.topics import MAX_TOPIC_BYTES
from speck.model.values import is_name, show
from speck.spec.expansion import text_bytes

MAX_TEXT_BYTES = 4_096
"""Of a text that has no limit of its own: the longest path of a file has so many."""
MAX_ARGUMENTS = 1_000
MAX_ARGUMENT_BYTES = 1 << 16
"""Of all arguments of one job: they are copied into requests, records and command lines."""
MAX_ADDRESS_BYTES = 512
"""Each job of a site repeats the addresses of the site."""
MAX_LABELS = 64
MAX_LABEL_BYTES = 1_024
_NO_SECRETS = "must hold no user, password, query or fragment; credentials belong to the site"
NULL = "must not be null; leave the field out"

_ARTIFACT = re.compile(r"artifact:[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class ListOf(fields.List[Any]):
    """A list that is read until so many of its items have a fault as are reported."""

    default_error_messages = {"invalid": "must be a list"}  # noqa: RUF012

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.make_error("invalid")
        result: list[Any] = []
        faults: dict[int, Any] = {}
        for index, each in enumerate(value):
            try:
                result.append(self.inner.deserialize(each, **kwargs))
            except ValidationError as error:
                faults[index] = error.messages
                if len(faults) >= MOST_PROBLEMS:
                    break
        if faults:
            raise ValidationError(faults)
        return result


class Text(fields.String):
    """A string of at most `most_bytes` in UTF-8; for numbers and booleans the message asks for
    quotes."""

    default_error_messages = {"required": "missing", "null": NULL}  # noqa: RUF012
    most_bytes: ClassVar[int] = MAX_TEXT_BYTES

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        if isinstance(value, bool | int | float):
            raise ValidationError(f"must be text, not {json.dumps(value)}; put it in quotes")
        if not isinstance(value, str):
            raise ValidationError("must be text")
        if "\0" in value or not _is_unicode(value):
            raise ValidationError("must be Unicode text without the character NUL")
        if text_bytes(value) > self.most_bytes:
            raise ValidationError(f"must be at most {self.most_bytes} bytes of UTF-8")
        return value


class Name(Text):
    """A name; all names in speck follow one pattern."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        if not is_name(text):
            raise ValidationError(
                f"{show(text)} is not a name: 1 to 63 letters, digits, '_', '.' or '-', "
                "the first a letter or digit"
            )
        return text


class Topic(Text):
    """A topic that a job may write or read: no wildcards, no topic of the broker's own."""

    most_bytes = MAX_TOPIC_BYTES

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        if (fault := any_topic_fault(text)) is not None:
            raise ValidationError(fault)
        return text


class EngineAddress(Text):
    """The address of an engine of any installed kind."""

    most_bytes = MAX_ADDRESS_BYTES
    group: ClassVar[str] = ENGINES

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        try:
            merged_rules(self.group).normalise(text)
        except SecretsInAddressError as error:  # the message must not repeat a password
            raise ValidationError(_NO_SECRETS) from error
        except AddressError as error:
            raise ValidationError(self._fault(text, error.reason)) from error
        return text

    def _fault(self, text: str, reason: str | None = None) -> str:
        why = f": {reason}" if reason else ""
        return f"{show(text)} is not an address like {merged_rules(self.group).example}{why}"


class BrokerAddress(EngineAddress):
    """The address of a broker of any installed kind."""

    group = BROKERS


class Entry(Text):
    """Where a program begins, in the terms of its engine, whose binder judges it: a class, say."""

    most_bytes = 1024


class JobPath(Text):
    """An artifact: a file in one of the folders of `--jars`, or `artifact:<sha256>`."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        if not text or _CONTROL.search(text):
            raise ValidationError("must be a path without control characters")
        if text.startswith("artifact:") and not _ARTIFACT.fullmatch(text):
            raise ValidationError("must be artifact: and the 64 lower-case hex digits of a SHA-256")
        return text


class Choice(fields.Enum[StrEnum]):
    """One of an enumeration's values."""

    def __init__(self, choices: type[StrEnum], **kwargs: Any) -> None:
        names = ", ".join(choices)
        kwargs["error_messages"] = {"unknown": f"must be one of {names}", "null": NULL}
        super().__init__(choices, by_value=True, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        try:
            return super()._deserialize(value, attr, data, **kwargs)
        except ValidationError as error:
            hint = suggest(value.replace("-", "_"), self.enum, "") if isinstance(value, str) else ""
            if not hint:
                raise
            raise ValidationError(f"{error.messages[0]}; {hint}") from error


class Flag(fields.Boolean):
    """true or false; no other spelling."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise ValidationError("must be true or false")
        return value


class Whole(fields.Integer):
    """A whole number from `least` to `most`."""

    def __init__(self, least: int, most: int, **kwargs: Any) -> None:
        super().__init__(
            strict=True,
            validate=Range(least, most, error="must be from {min} to {max}"),
            error_messages={"invalid": "must be a whole number"},
            **kwargs,
        )


class Amount(fields.Float):
    """A number greater than 0 and at most `most`, which no real quantity exceeds: sums and products
    of such numbers stay finite. Text is refused even if it looks like a number."""

    def __init__(self, most: float = 1e9, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._most = most

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValidationError("must be a number greater than 0")
        if value > self._most:
            raise ValidationError(f"must be at most {self._most:,.0f}")
        return float(super()._deserialize(value, attr, data, **kwargs) or value)


class _Argument(Text):
    most_bytes = MAX_ARGUMENT_BYTES


class Arguments(fields.List[str]):
    """A job's own arguments."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(_Argument(), **kwargs)

    def _deserialize(
        self, value: Any, attr: str | None, data: Any, **kwargs: Any
    ) -> list[str | None]:
        if not isinstance(value, list | tuple):
            raise ValidationError("must be a list of text")
        if len(value) > MAX_ARGUMENTS:
            raise ValidationError(f"must be at most {MAX_ARGUMENTS} arguments")
        if (size := text_bytes(value)) > MAX_ARGUMENT_BYTES:
            raise ValidationError(
                f"have {size} bytes, a job's arguments at most {MAX_ARGUMENT_BYTES}; send longer"
                " ones in the artifact"
            )
        # most are plain, and a field for each takes ten times as long
        if all(type(each) is str and each.isascii() and "\0" not in each for each in value):
            return list(value)
        return super()._deserialize(list(value), attr, data, **kwargs)


class Labels(fields.Dict):
    """A mapping of names to free text."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValidationError("must be a mapping of names to text")
        if len(value) > MAX_LABELS:
            raise ValidationError(f"must be at most {MAX_LABELS} labels")
        faults: dict[str, Any] = {}
        for key, label in value.items():
            if not is_name(str(key)):
                faults[str(key)] = ["is not a name for a label"]
            elif not isinstance(label, str) or _CONTROL.search(label) or not _is_unicode(label):
                faults[str(key)] = ["must be text on one line; put numbers in quotes"]
            elif text_bytes(label) > MAX_LABEL_BYTES:
                faults[str(key)] = [f"must be at most {MAX_LABEL_BYTES} bytes of UTF-8"]
        if faults:
            raise ValidationError(faults)
        return dict(value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
