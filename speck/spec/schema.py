"""marshmallow schemas of compositions and jobs: YAML and JSON <-> the model's descriptions.

The schemas here check shape and spelling only; `speck.spec.topology` checks the graph and
`speck.spec.resolve` what needs the registered sites and the artifacts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import Any

from marshmallow import (
    ValidationError,
    fields,
    post_dump,
    post_load,
    pre_load,
    validates_schema,
)

from speck.errors import InvalidError, Problem
from speck.model.bounded_cache import BoundedCache
from speck.model.composition import CompositionDescription, Drift, Port
from speck.model.ids import OUTSIDE_READER
from speck.model.job import JobDescription, JobOptions
from speck.model.values import JsonObject
from speck.spec.documents import LineOf, dump, limits_for, load, load_document
from speck.spec.expansion import expansion_problem, text_bytes
from speck.spec.fields import (
    Amount,
    BrokerAddress,
    Choice,
    EngineAddress,
    Entry,
    JobPath,
    ListOf,
    Name,
    Topic,
)
from speck.spec.options import DEFAULTS, derive_fields
from speck.spec.strict_schema import StrictSchema

MAX_JOBS = 10_000
"""The most jobs of a composition, unless the service is configured otherwise."""
_FEW_PORTS = 1_000
"""So many inputs and outputs a composition may have, and as many as jobs."""


class _Placing(StrictSchema):
    """A job's site, its brokers and its options: everything that may be left out."""

    spe_address = EngineAddress(allow_none=True)
    site = Name(allow_none=True)
    engine = Name(allow_none=True)
    source_broker = BrokerAddress(allow_none=True)
    source_site = Name(allow_none=True)
    sink_broker = BrokerAddress(allow_none=True)
    sink_site = Name(allow_none=True)
    vars().update(derive_fields(JobOptions))

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _check_not_both(self, data: Any, original: Any, **kwargs: Any) -> None:
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
    """`defaults` of a composition: they apply to every job that does not set the field itself."""

    entry_class = Entry()
    job_path = JobPath()


class JobSchema(_Placing):
    """One job as its user writes it; loads to a JobDescription."""

    job_name = Name(required=True)
    source_topic = Topic(required=True)
    sink_topic = Topic(required=True)
    entry_class = Entry()
    job_path = JobPath(required=True)

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _check_place(self, data: Any, original: Any, **kwargs: Any) -> None:
        if isinstance(original, Mapping) and not any(
            original.get(key) is not None for key in _EITHER[0]
        ):
            raise ValidationError({"site": ["missing: give site or spe_address"]})

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> JobDescription:
        return JobDescription(**{**data, "args": tuple(data.get("args", ()))})

    @post_dump
    def _omit_defaults(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {
            key: data[key]
            for key in _JOB_KEYS
            if data.get(key) not in (None, "") and data[key] != _NESTED_DEFAULTS.get(key)
        }


_JOB_KEYS = tuple(
    each.name for each in sorted(dataclass_fields(JobDescription), key=lambda f: bool(f.kw_only))
)
_NESTED_DEFAULTS = {name: value for name, value in DEFAULTS.items() if isinstance(value, dict)}
"""The defaults of options that are mappings."""


class _JobField(fields.Nested):
    """A job of a composition."""

    def _deserialize(
        self, value: Any, attr: str | None, data: Any, partial: Any = None, **kwargs: Any
    ) -> Any:
        job = read_valid_job(value)
        if job is not None:
            return job
        return super()._deserialize(value, attr, data, partial, **kwargs)


def read_valid_job(data: Any) -> JobDescription | None:
    """The job in parsed `data`; None if it has a fault, which its schema describes. This looks only
    at the fields that are given, and so takes a third of the schema's time."""
    if not isinstance(data, dict) or not data.keys() >= _REQUIRED:
        return None
    given = {key for key, value in data.items() if value is not None}
    if not given.intersection(_EITHER[0]) or any(given.issuperset(pair) for pair in _EITHER):
        return None
    try:
        values: dict[str, Any] = {
            key: _JOB.fields[key].deserialize(value) for key, value in data.items()
        }
    except (KeyError, ValidationError):
        return None
    return JobDescription(**{**values, "args": tuple(values.get("args", ()))})


class PortSchema(StrictSchema):
    """A topic that outside programs write or read."""

    topic = Topic(required=True)
    site = Name(allow_none=True)
    broker = BrokerAddress(allow_none=True)

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _check_place(self, data: Any, original: Any, **kwargs: Any) -> None:
        if isinstance(original, Mapping):
            places = [key for key in ("site", "broker") if original.get(key) is not None]
            if len(places) != 1:
                raise ValidationError({"site": ["give exactly one of site and broker"]})

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Port:
        return Port(**data)

    @post_dump
    def _omit_defaults(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {key: value for key, value in data.items() if value is not None}


class OutputSchema(PortSchema):
    """An output; with `client_id`, speck reserves the session of that reader."""

    client_id = Name(allow_none=True)

    @validates_schema
    def _check_client_id(self, data: dict[str, Any], **kwargs: Any) -> None:
        client_id = data.get("client_id") or ""
        if client_id.startswith("speck-") and not client_id.startswith(OUTSIDE_READER):
            fault = (
                "must not begin with speck-: such ids belong to speck, but for"
                f" {OUTSIDE_READER} and what follows"
            )
            raise ValidationError({"client_id": [fault]})


class RequirementsSchema(StrictSchema):
    """Limits that speck watches and that placement respects: `max_latency_ms` in milliseconds,
    `min_rate` in messages per second."""

    max_latency_ms = Amount()
    min_rate = Amount()


class CompositionSchema(StrictSchema):
    """A composition as its user writes it; loads to a CompositionDescription."""

    name = Name(load_default="default")
    drift = Choice(Drift)
    defaults = fields.Nested(JobDefaultsSchema, load_only=True)
    requirements = fields.Nested(RequirementsSchema)
    jobs = ListOf(_JobField(JobSchema), required=True)
    inputs = ListOf(fields.Nested(PortSchema))
    outputs = ListOf(fields.Nested(OutputSchema))

    @pre_load
    def _apply_defaults(self, data: Any, **kwargs: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        defaults, jobs = data.get("defaults"), data.get("jobs")
        if not isinstance(defaults, Mapping) or not isinstance(jobs, list):
            return data
        if JobDefaultsSchema().validate(defaults):
            return data  # reported once, at `defaults`, rather than again for every job
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
    def _omit_defaults(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if data["drift"] == Drift.MEND:
            del data["drift"]
        return {key: value for key, value in data.items() if value or key in ("name", "jobs")}


def _with_defaults(defaults: Mapping[str, Any], job: Any) -> Any:
    """Add the defaults to `job`; its own `site` overrides a default `spe_address`."""
    if not isinstance(job, Mapping):
        return job
    overridden = {
        other
        for address, place in _EITHER
        for key, other in ((address, place), (place, address))
        if job.get(key) is not None
    }
    applicable = {key: value for key, value in defaults.items() if key not in overridden}
    return {**applicable, **job}


# Created once: creating a schema takes ten times as long as loading a job with it.
_COMPOSITION, _JOB = CompositionSchema(), JobSchema()
_REQUIRED = frozenset(name for name, field in _JOB.fields.items() if field.required)


def load_composition(text: bytes, content_type: str | None) -> CompositionDescription:
    """Parse and check the shape of a composition. Raises InvalidError with every problem."""
    document = load_document(text, content_type, limits_for(MAX_JOBS))
    return composition_from_data(document.data, document.line_of)


def composition_from_data(
    data: Any, line_of: LineOf | None = None, most_jobs: int = MAX_JOBS
) -> CompositionDescription:
    """The description in parsed `data`. Raises InvalidError with every problem, or only that it has
    more than `most_jobs` jobs, inputs or outputs, or more bytes with its defaults written out than
    a document for so many jobs may have: these are not looked at."""
    problem = _length_problem(data, most_jobs)
    if problem is None:
        problem = expansion_problem(data, limits_for(most_jobs).bytes)
    if problem is not None:
        problem = replace(problem, line=line_of(problem.path) if line_of else None)
        raise InvalidError(f"cannot read the composition: {problem}", [problem])
    description: CompositionDescription = load(_COMPOSITION, data, "composition", line_of)
    return description


def _length_problem(data: Any, most_jobs: int) -> Problem | None:
    """The problem of the first list that is too long."""
    most_ports = max(most_jobs, _FEW_PORTS)
    for key, most in (("jobs", most_jobs), ("inputs", most_ports), ("outputs", most_ports)):
        each = data.get(key) if isinstance(data, dict) else None
        if isinstance(each, list) and len(each) > most:
            return Problem(key, f"must be at most {most} {key}")
    return None


def job_from_data(data: Any, line_of: LineOf | None = None) -> JobDescription:
    """The description of one job in parsed `data`. Raises InvalidError with every problem."""
    description: JobDescription = load(_JOB, data, "job", line_of)
    return description


def dump_job(job: JobDescription) -> JsonObject:
    """Dump `job` for `job_from_data`, without fields that are None. Not to be changed: callers
    share it."""
    return _DUMPED.get(job, lambda: dump(_JOB, job))


_DUMPED: BoundedCache[JobDescription, JsonObject] = BoundedCache(
    64 << 20, lambda job, dumped: 2_000 + 2 * text_bytes(dumped)
)


def dump_composition(
    composition: CompositionDescription,
    dump_job: Callable[[JobDescription], JsonObject] = dump_job,
) -> JsonObject:
    """Dump `composition` for `composition_from_data`, without empty fields; each of its jobs by
    `dump_job`."""
    data = dump(_COMPOSITION, replace(composition, jobs=()))
    return {**data, "jobs": list(map(dump_job, composition.jobs))}
