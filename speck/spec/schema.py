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
from marshmallow.validate import Length

from speck.binding import BROKERS, ENGINES, address_rules, kinds, merged_rules
from speck.errors import MOST_PROBLEMS, InvalidError, Problem
from speck.model.addresses import AddressError
from speck.model.bounded_cache import BoundedCache
from speck.model.composition import CompositionDescription, Drift, Port
from speck.model.ids import OUTSIDE_READER
from speck.model.job import JobDescription, JobOptions
from speck.model.site import Broker, Engine, Site, Tier
from speck.model.values import JsonObject, show
from speck.spec import yaml_loader
from speck.spec.expansion import expansion_problem, text_bytes
from speck.spec.fields import (
    Amount,
    BrokerAddress,
    Choice,
    EngineAddress,
    Entry,
    JobPath,
    Labels,
    ListOf,
    Name,
    Topic,
)
from speck.spec.options import DEFAULTS, derive_fields
from speck.spec.strict_schema import StrictSchema
from speck.spec.yaml_loader import MAX_BYTES, MAX_NODES, Document, Limits

LineOf = Callable[[str], int | None]

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
MAX_JOBS = 10_000
"""The most jobs of a composition, unless the service is configured otherwise."""
_FEW_PORTS = 1_000
"""So many inputs and outputs a composition may have, and as many as jobs."""
_BYTES_A_JOB, _NODES_A_JOB = 512, 40
"""A job with its fields has about 300 bytes and 20 values."""
MOST_MBPS = 1e6
MOST_LATENCY_MS = 60_000.0
"""No link of a site is faster than a terabit a second, or a minute long."""

_QUEUE = re.compile(r"\d{1,12}")
"""The label `max_queued_messages` of a site: how many its broker keeps for one reader."""

_LATENCY = re.compile(r"\d{1,9}(\.\d{1,9})?")
"""The label `latency_ms` of a site: one way to the core of the network."""


# --- schemas ----------------------------------------------------------------------------


class _Placing(StrictSchema):
    """A job's site, its brokers and its options: everything that may be left out."""

    spe_address = EngineAddress(allow_none=True)
    site = Name(allow_none=True)
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


def _read_address(group: str, kind: str, address: str | None) -> str:
    """An address in its normal form, as the binder of its kind describes it; empty for one that has
    none. An unknown kind is refused later, together with those that are installed."""
    rules = address_rules(group, kind) if kind in kinds(group) else merged_rules(group)
    if rules is None:
        if address is not None:
            fault = f"kind {kind} has no address: it is reached through the site's agent"
            raise ValidationError({"address": [fault]})
        return ""
    try:
        return rules.normalise(address or "")
    except AddressError as error:
        raise ValidationError({"address": [str(error)]}) from error


class _EngineSchema(StrictSchema):
    kind = Name(load_default="flink")
    address = EngineAddress(allow_none=True)
    credentials = Name(allow_none=True)

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _check_address(self, data: Any, original: Any, **kwargs: Any) -> None:
        if isinstance(original, Mapping) and original.get("address") is None:
            kind = data.get("kind") or "flink"
            if kind not in kinds(ENGINES) or address_rules(ENGINES, kind) is not None:
                raise ValidationError({"address": ["missing"]})

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Engine:
        address = _read_address(ENGINES, data["kind"], data.get("address"))
        return Engine(data["kind"], address, data.get("credentials"), data.get("beside"))

    @post_dump
    def _omit_absent(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {key: value for key, value in data.items() if value}


class EngineSchema(_EngineSchema):
    """`spe` of a site; with another engine `beside` it."""

    beside = fields.Nested(_EngineSchema, allow_none=True)


class BrokerSchema(StrictSchema):
    """`broker` of a site; `credentials` is the name of a file, never a secret."""

    kind = Name(load_default="mqtt")
    address = BrokerAddress(required=True)
    credentials = Name(allow_none=True)

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Broker:
        address = _read_address(BROKERS, data["kind"], data["address"])
        return Broker(data["kind"], address, data.get("credentials"))


class SiteSchema(StrictSchema):
    """A site as it is registered; loads to a Site with normalised addresses."""

    name = Name(required=True)
    tier = Choice(Tier, required=True)
    spe = fields.Nested(EngineSchema, required=True)
    broker = fields.Nested(BrokerSchema, required=True)
    uplink_mbps = Amount(MOST_MBPS, allow_none=True)
    labels = Labels(keys=fields.String(), values=fields.String())

    @validates_schema
    def _check_labels(self, data: dict[str, Any], **kwargs: Any) -> None:
        labels = data.get("labels", {})
        latency, queue = labels.get("latency_ms", "0"), labels.get("max_queued_messages", "0")
        if not _QUEUE.fullmatch(queue):
            fault = f"{show(queue)} is no whole number of messages like '1000'"
            raise ValidationError({"labels": {"max_queued_messages": [fault]}})
        if not _LATENCY.fullmatch(latency) or float(latency) > MOST_LATENCY_MS:
            fault = (
                f"{show(latency)} is no number of milliseconds like '18.6',"
                f" at most {MOST_LATENCY_MS:g}"
            )
            raise ValidationError({"labels": {"latency_ms": [fault]}})

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Site:
        return Site(**data)


class SitesSchema(StrictSchema):
    """Several sites that are registered or changed together."""

    sites = fields.List(
        fields.Nested(SiteSchema), required=True, validate=Length(1, 1000, error="list 1 to 1000")
    )


# --- loading and dumping ----------------------------------------------------------------


def limits_for(jobs: int) -> Limits:
    """The limits of a document that may describe so many jobs."""
    return Limits(max(MAX_BYTES, jobs * _BYTES_A_JOB), max(MAX_NODES, jobs * _NODES_A_JOB))


def load_document(text: bytes, content_type: str | None, limits: Limits | None = None) -> Document:
    """Parse a request body or file by its media type (parameters ignored; none means YAML).

    Raises InvalidError: status 400 if it cannot be parsed, 415 for another media type.
    """
    media = (content_type or "").split(";")[0].strip().lower()
    if media == "application/json" or media.endswith("+json"):
        return yaml_loader.load_json(text, limits or Limits())
    if not media or media in YAML_TYPES:
        return yaml_loader.load(text, limits or Limits())
    raise InvalidError(
        f"cannot read content type {show(media)}; send application/yaml or application/json",
        status=415,
    )


# Created once: creating a schema takes ten times as long as loading a job with it.
_COMPOSITION, _JOB, _SITE = CompositionSchema(), JobSchema(), SiteSchema()
_SITES = SitesSchema()
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
    return _read_composition(data, line_of)


def _length_problem(data: Any, most_jobs: int) -> Problem | None:
    """The problem of the first list that is too long."""
    most_ports = max(most_jobs, _FEW_PORTS)
    for key, most in (("jobs", most_jobs), ("inputs", most_ports), ("outputs", most_ports)):
        each = data.get(key) if isinstance(data, dict) else None
        if isinstance(each, list) and len(each) > most:
            return Problem(key, f"must be at most {most} {key}")
    return None


def _read_composition(data: Any, line_of: LineOf | None = None) -> CompositionDescription:
    description: CompositionDescription = _load(_COMPOSITION, data, "composition", line_of)
    return description


def composition_as_stored(data: JsonObject) -> CompositionDescription:
    """The inverse of `dump_composition`, also for hidden names, which users may not give."""
    with_valid_name = {**data, "name": _COMPOSITION.fields["name"].load_default}
    description = _read_composition(with_valid_name)  # accepted once, perhaps under other limits
    return replace(description, name=data["name"])


def job_from_data(data: Any, line_of: LineOf | None = None) -> JobDescription:
    """The description of one job in parsed `data`. Raises InvalidError with every problem."""
    description: JobDescription = _load(_JOB, data, "job", line_of)
    return description


def sites_from_data(data: Any, line_of: LineOf | None = None) -> list[Site]:
    """The sites in parsed `data`, `{"sites": [...]}`. Raises InvalidError with every problem."""
    sites: list[Site] = _load(_SITES, data, "list of sites", line_of)["sites"]
    return sites


def site_from_data(data: Any, line_of: LineOf | None = None) -> Site:
    """The site in parsed `data`, addresses normalised. Raises InvalidError with every problem."""
    site: Site = _load(_SITE, data, "site", line_of)
    return site


def _load(schema: Schema, data: Any, noun: str, line_of: LineOf | None) -> Any:
    if data is None:
        problem = Problem("", f"empty; a {noun} is a mapping of field names to values")
        raise InvalidError(f"cannot read the {noun}: it is empty", [problem])
    try:
        return schema.load(data)
    except ValidationError as exc:
        problems = problems_of(exc.messages, line_of)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidError(f"cannot read the {noun}: {problems[0]}{more}", problems) from exc


def problems_of(messages: Any, line_of: LineOf | None = None) -> list[Problem]:
    """Turn marshmallow's nested error messages into problems with paths (100 at most), by line."""
    find_line = line_of or (lambda path: None)
    problems = [
        Problem(path, message, find_line(path))
        for path, message in islice(_flatten(messages, ""), MOST_PROBLEMS)
    ]
    return sorted(problems, key=lambda problem: problem.line or 0)


def _flatten(messages: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(messages, Mapping):
        for key, inner in sorted(messages.items(), key=_by_index):
            if isinstance(key, int):
                yield from _flatten(inner, f"{path}[{key}]")
            elif key == "_schema":
                yield from _flatten(inner, path)
            else:
                yield from _flatten(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(messages, list | tuple):
        for inner in messages:
            yield from _flatten(inner, path)
    else:
        yield path, str(messages)


def _by_index(item: tuple[Any, Any]) -> int:
    return item[0] if isinstance(item[0], int) else 0


def dump_job(job: JobDescription) -> JsonObject:
    """Dump `job` for `job_from_data`, without fields that are None. Not to be changed: callers
    share it."""
    return _DUMPED.get(job, lambda: _dump(_JOB, job))


_DUMPED: BoundedCache[JobDescription, JsonObject] = BoundedCache(
    64 << 20, lambda job, dumped: 2_000 + 2 * text_bytes(dumped)
)


def dump_composition(composition: CompositionDescription) -> JsonObject:
    """Dump `composition` for `composition_from_data`, without empty fields."""
    data = _dump(_COMPOSITION, replace(composition, jobs=()))
    return {**data, "jobs": [dump_job(job) for job in composition.jobs]}


def dump_site(site: Site) -> JsonObject:
    """Dump `site` for `site_from_data`, without fields that are None."""
    data = _dump(_SITE, site)
    data["broker"] = _drop_none(data["broker"])
    return _drop_none(data)


def _dump(schema: Schema, value: object) -> JsonObject:
    data: JsonObject = dict(schema.dump(value))
    return data


def _drop_none(data: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in data.items() if value is not None}
