"""Addresses of engines and brokers: their binders say which schemes, ports and paths there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from speck.binding.registry import BROKERS, ENGINES, find_binder, is_simulated, kinds
from speck.model.addresses import AddressError, Scheme, SecretsInAddressError, normalise
from speck.model.site import Broker, Engine
from speck.model.values import show


@dataclass(frozen=True, slots=True)
class AddressRules:
    """What an address of an engine or a broker looks like (`addresses` of its binder's class).

    `several_hosts`: it may name several, between commas (`log://a:9092,b:9092`), any of which leads
    to the whole; their order means nothing.
    """

    schemes: Mapping[str, Scheme]
    example: str
    has_path: bool = False
    several_hosts: bool = False

    def normalise(self, address: str) -> str:
        """The address in the form in which addresses are compared. Raises AddressError."""
        scheme, _, hosts = address.strip().partition("://")
        if not self.several_hosts or "," not in hosts:
            return self._normalise_one(address)
        each = [self._normalise_one(f"{scheme}://{host}") for host in hosts.split(",")]
        ends = sorted({one.partition("://")[2] for one in each})
        return f"{each[0].partition('://')[0]}://{','.join(ends)}"

    def _normalise_one(self, address: str) -> str:
        normalised = normalise(address, self.schemes, self.example)
        if not self.has_path and normalised.count("/") > 2:
            reason = "such an address has no path"
            example = f"an address like {self.example}"
            raise AddressError(f"{show(address)} is not {example}: {reason}", reason)
        return normalised


def address_rules(group: str, kind: str) -> AddressRules | None:
    """The rules of a kind; None: it has no addresses, since it is reached through the site's agent.
    Raises PermanentError for an unknown kind."""
    rules: AddressRules | None = find_binder(group, kind).addresses
    return rules


@dataclass(frozen=True, slots=True)
class MergedRules:
    """The rules of several kinds, for an address that is given without a kind."""

    kinds: Mapping[str, AddressRules]

    @property
    def example(self) -> str:
        return " or ".join(dict.fromkeys(each.example for each in self.kinds.values()))

    def find_kinds(self, address: str) -> Mapping[str, str]:
        """The address in the normal form of each kind that it may belong to. Raises AddressError if
        there is none: that of the kind whose scheme it has, if that says what is wrong with it."""
        forms: dict[str, str] = {}
        refusals: list[AddressError] = []
        for kind, rules in self.kinds.items():
            try:
                forms[kind] = rules.normalise(address)
            except AddressError as error:
                refusals.append(error)
        if not forms:
            for refusal in refusals:
                if refusal.reason is not None or isinstance(refusal, SecretsInAddressError):
                    raise refusal
            AddressRules({}, self.example).normalise(address)
        return forms

    def normalise(self, address: str) -> str:
        """The address in the form in which addresses are compared. Raises AddressError, also if it
        means one thing to one kind and another to another: a kind that is installed later must not
        change where an address leads."""
        forms = self.find_kinds(address)
        form, *others = sorted(set(forms.values()))
        if others:
            meant = ", ".join(f"{form} ({kind})" for kind, form in sorted(forms.items()))
            reason = f"it means {meant}: write it out, or name the site"
            raise AddressError(f"{show(address)} is not one address: {reason}", reason)
        return form


@cache
def merged_rules(*groups: str) -> MergedRules:
    """Those of all kinds that are installed."""
    rules_of: dict[str, AddressRules] = {}
    for group in groups:
        for kind in kinds(group):
            rules = address_rules(group, kind)
            if rules is not None:
                noun = "" if len(groups) == 1 else "broker " if group == BROKERS else "engine "
                rules_of[f"{noun}{kind}"] = rules
    return MergedRules(rules_of)


def kind_of_address(group: str, address: str) -> tuple[str, str]:
    """The kind that an address belongs to, and the address in its normal form. A kind that is
    simulated counts only if there is no other. Raises AddressError, also if there are several."""
    forms = merged_rules(group).find_kinds(address)
    real = [kind for kind in forms if not is_simulated(group, kind)] or sorted(forms)[:1]
    if len(real) > 1:
        reason = f"it may be one of kind {' or '.join(sorted(real))}: name a registered site"
        raise AddressError(f"{show(address)} does not say what is there: {reason}", reason)
    return real[0], forms[real[0]]


@lru_cache(4096)
def normalise_address(address: str) -> str:
    """The address of an engine or a broker of any installed kind, in the form in which addresses
    are compared; see `speck.model.addresses`. Raises AddressError."""
    return merged_rules(ENGINES, BROKERS).normalise(address)


def is_encrypted(end: Engine | Broker) -> bool:
    """Whether connections to a site's engine or broker use TLS, as its address says."""
    rules = address_rules(ENGINES if isinstance(end, Engine) else BROKERS, end.kind)
    scheme = rules.schemes.get(end.address.partition(":")[0]) if rules is not None else None
    return scheme is not None and scheme.encrypted
