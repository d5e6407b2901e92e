"""The marshmallow schema of sites: YAML and JSON <-> Site."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, post_dump, post_load, validates_schema
from marshmallow.validate import Length

from speck.binding import BROKERS, ENGINES, address_rules, kinds, merged_rules
from speck.model.addresses import AddressError
from speck.model.site import DEFAULT_BROKER, DEFAULT_ENGINE, Broker, Engine, Site, Tier
from speck.model.values import JsonObject, show
from speck.spec.documents import LineOf, dump, load
from speck.spec.fields import Amount, BrokerAddress, Choice, EngineAddress, Labels, Name
from speck.spec.strict_schema import StrictSchema

MOST_MBPS = 1e6
MOST_LATENCY_MS = 60_000.0
"""No link of a site is faster than a terabit a second, or a minute long."""

_QUEUE = re.compile(r"\d{1,12}")
"""The label `max_queued_messages` of a site: how many its broker keeps for one reader."""

_LATENCY = re.compile(r"\d{1,9}(\.\d{1,9})?")
"""The label `latency_ms` of a site: one way to the core of the network."""


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


class EngineSchema(StrictSchema):
    """An engine of a site; `credentials` is the name of a file, never a secret."""

    kind = Name(load_default=DEFAULT_ENGINE)
    address = EngineAddress(allow_none=True)
    credentials = Name(allow_none=True)

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _check_address(self, data: Any, original: Any, **kwargs: Any) -> None:
        if isinstance(original, Mapping) and original.get("address") is None:
            kind = data.get("kind") or DEFAULT_ENGINE
            if kind not in kinds(ENGINES) or address_rules(ENGINES, kind) is not None:
                raise ValidationError({"address": ["missing"]})

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Engine:
        address = _read_address(ENGINES, data["kind"], data.get("address"))
        return Engine(data["kind"], address, data.get("credentials"), data.get("beside"))

    @post_dump
    def _omit_absent(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {key: value for key, value in data.items() if value}


class SpeSchema(EngineSchema):
    """`spe` of a site; with another engine `beside` it."""

    beside = fields.Nested(EngineSchema, allow_none=True)


class BrokerSchema(StrictSchema):
    """`broker` of a site; `credentials` is the name of a file, never a secret."""

    kind = Name(load_default=DEFAULT_BROKER)
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
    spe = fields.Nested(SpeSchema, required=True)
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


# Created once: creating a schema takes ten times as long as loading a site with it.
_SITE, _SITES = SiteSchema(), SitesSchema()


def sites_from_data(data: Any, line_of: LineOf | None = None) -> list[Site]:
    """The sites in parsed `data`, `{"sites": [...]}`. Raises InvalidError with every problem."""
    sites: list[Site] = load(_SITES, data, "list of sites", line_of)["sites"]
    return sites


def site_from_data(data: Any, line_of: LineOf | None = None) -> Site:
    """The site in parsed `data`, addresses normalised. Raises InvalidError with every problem."""
    site: Site = load(_SITE, data, "site", line_of)
    return site


def dump_site(site: Site) -> JsonObject:
    """Dump `site` for `site_from_data`, without fields that are None."""
    data = dump(_SITE, site)
    data["broker"] = _drop_none(data["broker"])
    return _drop_none(data)


def _drop_none(data: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in data.items() if value is not None}
