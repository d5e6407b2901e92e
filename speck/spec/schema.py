"""marshmallow schemas: YAML and JSON <-> the model's descriptions.

Every fault of a document is found in one pass and named by its path (and line, for YAML).
The schemas here check shape and spelling only; `speck.spec.topology` checks the graph and
`speck.spec.resolve` what needs the registered sites and the jars.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from itertools import islice
from typing import Any

from marshmallow import (
    Schema,
    ValidationError,
    fields,
    post_dump,
    post_load,
    pre_load,
    validates_schema,
)

from speck.errors import InvalidError, Problem
from speck.model.composition import CompositionDescription, Drift, Port
from speck.model.job import JobDescription, JobOptions
from speck.model.site import Broker, Engine, Site, Tier, normalise_address
from speck.model.values import JsonObject
from speck.spec import yaml_loader
from speck.spec.fields import (
    Amount,
    BrokerAddress,
    Choice,
    ClassName,
    EngineAddress,
    JobPath,
    Labels,
    Name,
    Topic,
    show,
)
from speck.spec.options import DEFAULTS, derived_fields
from speck.spec.strict_schema import MAX_PROBLEMS, StrictSchema
from speck.spec.yaml_loader import Document

LineOf = Callable[[str], int | None]

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
MAX_JOBS = 10_000
_LATENCY = re.compile(r"\d{1,9}(\.\d{1,9})?")
"""The label `latency_ms` of a site: one way to the core of the network."""


# --- schemas ----------------------------------------------------------------------------


class _Placing(StrictSchema):
    """Where a job runs and what it is joined to, and everything that has a default."""

    spe_address = EngineAddress(allow_none=True)
    site = Name(allow_none=True)
    source_broker = BrokerAddress(allow_none=True)
    source_site = Name(allow_none=True)
    sink_broker = BrokerAddress(allow_none=True)
    sink_site = Name(allow_none=True)
    vars().update(derived_fields(JobOptions))

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _not_both(self, data: Any, original: Any, **kwargs: Any) -> None:
        if not isinstance(original, Mapping):
            return
        faults = {
            place: [f"give {place} or {address}, not both"]
            for address, place in _EITHER
            if original.get(address) is not None and original.get(place) is not None
        }
        if faults:
            raise ValidationError(faults)


_EITHER = (("spe_address", "site"), ("source_broker", "source_site"), ("sink_broker", "sink_site"))


class JobDefaultsSchema(_Placing):
    """`defaults` of a composition: given to every job that does not say otherwise."""

    entry_class = ClassName()
    job_path = JobPath()


class JobSchema(_Placing):
    """One job as its user writes it; loads to a JobDescription."""

    job_name = Name(required=True)
    source_topic = Topic(required=True)
    sink_topic = Topic(required=True)
    entry_class = ClassName(required=True)
    job_path = JobPath(required=True)

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _placed(self, data: Any, original: Any, **kwargs: Any) -> None:
        if isinstance(original, Mapping) and not any(
            original.get(key) is not None for key in _EITHER[0]
        ):
            raise ValidationError({"site": ["missing: give site or spe_address"]})

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> JobDescription:
        return JobDescription(**{**data, "args": tuple(data.get("args", ()))})

    @post_dump
    def _brief(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {
            key: data[key]
            for key in _JOB_KEYS
            if data.get(key) is not None and data[key] != _LEFT_OUT.get(key)
        }


_JOB_KEYS = tuple(
    each.name for each in sorted(dataclass_fields(JobDescription), key=lambda f: bool(f.kw_only))
)
_LEFT_OUT = {name: value for name, value in DEFAULTS.items() if isinstance(value, dict)}
"""Options that are mappings, at their defaults."""


class PortSchema(StrictSchema):
    """A topic that is fed, or read, from outside the composition."""

    topic = Topic(required=True)
    site = Name(allow_none=True)
    broker = BrokerAddress(allow_none=True)

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _placed(self, data: Any, original: Any, **kwargs: Any) -> None:
        if isinstance(original, Mapping):
            given = [key for key in ("site", "broker") if original.get(key) is not None]
            if len(given) != 1:
                raise ValidationError({"site": ["give exactly one of site and broker"]})

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Port:
        return Port(**data)

    @post_dump
    def _brief(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {key: value for key, value in data.items() if value is not None}


class OutputSchema(PortSchema):
    """An output; with `client_id`, the session of that reader is reserved."""

    client_id = Name(allow_none=True)

    @validates_schema
    def _foreign(self, data: dict[str, Any], **kwargs: Any) -> None:
        if (data.get("client_id") or "").startswith("speck-"):
            raise ValidationError({"client_id": ["must not begin with speck-: such ids are ours"]})


class RequirementsSchema(StrictSchema):
    """Limits that are watched, and kept by placement: milliseconds; messages per second."""

    max_latency_ms = Amount()
    min_rate = Amount()


class CompositionSchema(StrictSchema):
    """A composition as its user writes it; loads to a CompositionDescription."""

    name = Name(load_default="default")
    drift = Choice(Drift)
    defaults = fields.Nested(JobDefaultsSchema, load_only=True)
    requirements = fields.Nested(RequirementsSchema)
    jobs = fields.List(
        fields.Nested(JobSchema), required=True, error_messages={"invalid": "must be a list"}
    )
    inputs = fields.List(fields.Nested(PortSchema), error_messages={"invalid": "must be a list"})
    outputs = fields.List(fields.Nested(OutputSchema), error_messages={"invalid": "must be a list"})

    @pre_load
    def _apply_defaults(self, data: Any, **kwargs: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        defaults, jobs = data.get("defaults"), data.get("jobs")
        if isinstance(jobs, list) and len(jobs) > MAX_JOBS:
            raise ValidationError({"jobs": [f"must be at most {MAX_JOBS} jobs"]})
        if not isinstance(defaults, Mapping) or not isinstance(jobs, list):
            return data
        if JobDefaultsSchema().validate(defaults):
            return data  # told once, at `defaults`, rather than again for every job
        return {**data, "jobs": [_with_defaults(defaults, job) for job in jobs]}

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> CompositionDescription:
        return CompositionDescription(
            name=data["name"],
            jobs=tuple(data["jobs"]),
            inputs=tuple(data.get("inputs", ())),
            outputs=tuple(data.get("outputs", ())),
            requirements=data.get("requirements", {}),
            drift=data.get("drift", Drift.MEND),
        )

    @post_dump
    def _brief(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if data["drift"] == Drift.MEND:  # as revisions from before the field are kept
            del data["drift"]
        return {key: value for key, value in data.items() if value or key in ("name", "jobs")}


def _with_defaults(defaults: Mapping[str, Any], job: Any) -> Any:
    """`job` with what it leaves open; its own `site` outrules a default `spe_address`."""
    if not isinstance(job, Mapping):
        return job
    outruled = {
        other
        for address, place in _EITHER
        for given, other in ((address, place), (place, address))
        if job.get(given) is not None
    }
    kept = {key: value for key, value in defaults.items() if key not in outruled}
    return {**kept, **job}


class EngineSchema(StrictSchema):
    """`spe` of a site."""

    kind = Name(load_default="flink")
    address = EngineAddress(required=True)

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Engine:
        return Engine(data["kind"], normalise_address(data["address"]))


class BrokerSchema(StrictSchema):
    """`broker` of a site; `credentials` names a file, it never holds a secret."""

    kind = Name(load_default="mqtt")
    address = BrokerAddress(required=True)
    credentials = Name(allow_none=True)

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Broker:
        address = normalise_address(data["address"])
        return Broker(data["kind"], address, data.get("credentials"))


class SiteSchema(StrictSchema):
    """A site as it is registered; loads to a Site with normalised addresses."""

    name = Name(required=True)
    tier = Choice(Tier, required=True)
    spe = fields.Nested(EngineSchema, required=True)
    broker = fields.Nested(BrokerSchema, required=True)
    uplink_mbps = Amount(allow_none=True)
    labels = Labels(keys=fields.String(), values=fields.String())

    @validates_schema
    def _latency(self, data: dict[str, Any], **kwargs: Any) -> None:
        told = data.get("labels", {}).get("latency_ms", "0")
        if not _LATENCY.fullmatch(told):
            fault = f"{show(told)} is no number of milliseconds like '18.6'"
            raise ValidationError({"labels": {"latency_ms": [fault]}})

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Site:
        return Site(**data)


# --- loading and dumping ----------------------------------------------------------------


def load_document(text: bytes, content_type: str | None) -> Document:
    """Parse a request body or file by its media type (parameters ignored; none means YAML).

    Raises InvalidError: status 400 when it cannot be parsed, 415 for another media type.
    """
    media = (content_type or "").split(";")[0].strip().lower()
    if media == "application/json" or media.endswith("+json"):
        return yaml_loader.load_json(text)
    if not media or media in YAML_TYPES:
        return yaml_loader.load(text)
    raise InvalidError(
        f"cannot read content type {show(media)}; send application/yaml or application/json",
        status=415,
    )


# Made once: to make one takes ten times as long as to load a job with it.
_COMPOSITION, _JOB, _SITE = CompositionSchema(), JobSchema(), SiteSchema()


def load_composition(text: bytes, content_type: str | None) -> CompositionDescription:
    """Parse and check the shape of a composition. Raises InvalidError with every problem."""
    document = load_document(text, content_type)
    return composition_from_data(document.data, document.line_of)


def composition_from_data(data: Any, line_of: LineOf | None = None) -> CompositionDescription:
    """The description in parsed `data`. Raises InvalidError with every problem."""
    loaded: CompositionDescription = _loaded(_COMPOSITION, data, "composition", line_of)
    return loaded


def composition_as_stored(data: JsonObject) -> CompositionDescription:
    """The inverse of `dump_composition`, also for a name that no user may give."""
    named = {**data, "name": _COMPOSITION.fields["name"].load_default}
    return replace(composition_from_data(named), name=data["name"])


def job_from_data(data: Any, line_of: LineOf | None = None) -> JobDescription:
    """The description of one job in parsed `data`. Raises InvalidError with every problem."""
    loaded: JobDescription = _loaded(_JOB, data, "job", line_of)
    return loaded


def site_from_data(data: Any, line_of: LineOf | None = None) -> Site:
    """The site in parsed `data`, addresses normalised. Raises InvalidError with every problem."""
    loaded: Site = _loaded(_SITE, data, "site", line_of)
    return loaded


def _loaded(schema: Schema, data: Any, noun: str, line_of: LineOf | None) -> Any:
    if data is None:
        problem = Problem("", f"empty; a {noun} is a mapping of field names to values")
        raise InvalidError(f"cannot read the {noun}: it is empty", [problem])
    try:
        return schema.load(data)
    except ValidationError as exc:
        found = problems_of(exc.messages, line_of)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InvalidError(f"cannot read the {noun}: {found[0]}{more}", found) from exc


def problems_of(messages: Any, line_of: LineOf | None = None) -> list[Problem]:
    """marshmallow's nested error messages as problems with paths (100 at most), by line."""
    where = line_of or (lambda path: None)
    found = [
        Problem(path, message, where(path))
        for path, message in islice(_flattened(messages, ""), MAX_PROBLEMS)
    ]
    return sorted(found, key=lambda problem: problem.line or 0)


def _flattened(messages: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(messages, Mapping):
        for key, inner in sorted(messages.items(), key=_by_index):
            if isinstance(key, int):
                yield from _flattened(inner, f"{path}[{key}]")
            elif key == "_schema":
                yield from _flattened(inner, path)
            else:
                yield from _flattened(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(messages, list | tuple):
        for inner in messages:
            yield from _flattened(inner, path)
    else:
        yield path, str(messages)


def _by_index(item: tuple[Any, Any]) -> int:
    return item[0] if isinstance(item[0], int) else 0


def dump_job(job: JobDescription) -> JsonObject:
    """`job` as `job_from_data` reads it; what is None is left out."""
    return _dumped(_JOB, job)


def dump_composition(composition: CompositionDescription) -> JsonObject:
    """`composition` as `composition_from_data` reads it; what is empty is left out."""
    return _dumped(_COMPOSITION, composition)


def dump_site(site: Site) -> JsonObject:
    """`site` as `site_from_data` reads it; what is None is left out."""
    dumped = _dumped(_SITE, site)
    dumped["broker"] = _without_none(dumped["broker"])
    return _without_none(dumped)


def _dumped(schema: Schema, value: object) -> JsonObject:
    dumped: JsonObject = dict(schema.dump(value))
    return dumped


def _without_none(data: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in data.items() if value is not None}
