"""Addresses of engines and brokers: their binders say which schemes, ports and paths there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from speck.binding.registry import BROKERS, ENGINES, find_binder, is_simulated, kinds
from speck.model.addresses import AddressError, Scheme, normalise
from speck.model.values import show


@dataclass(frozen=True, slots=True)
class AddressRules:
    """What an address of an engine or a broker looks like (`addresses` of its binder's class)."""

    schemes: Mapping[str, Scheme]
    example: str
    has_path: bool = False

    def normalise(self, address: str) -> str:
        """The address in the form in which addresses are compared. Raises AddressError."""
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


@cache
def _installed(group: str) -> tuple[AddressRules, ...]:
    rules = (address_rules(group, kind) for kind in kinds(group))
    return tuple(each for each in rules if each is not None)


@cache
def merged_rules(*groups: str) -> AddressRules:
    """Any address of an installed kind. Where kinds differ in the port of a scheme, that of the
    first by name holds: users of the others write the port."""
    rules = [each for group in groups for each in _installed(group)]
    schemes = {name: each for one in reversed(rules) for name, each in one.schemes.items()}
    example = " or ".join(dict.fromkeys(each.example for each in rules))
    return AddressRules(schemes, example, any(each.has_path for each in rules))


def kind_of_address(group: str, address: str) -> tuple[str, str]:
    """The kind that an address belongs to by its scheme, and the address in its normal form; of
    several kinds the first by name that is not simulated. Raises AddressError."""
    normalised = merged_rules(group).normalise(address)
    scheme = normalised.partition(":")[0]
    fitting = []
    for kind in kinds(group):
        rules = address_rules(group, kind)
        if rules is not None and scheme in rules.schemes:
            fitting.append((is_simulated(group, kind), kind))
    return min(fitting)[1], normalised


@lru_cache(4096)
def normalise_address(address: str) -> str:
    """The address of an engine or a broker of any installed kind, in the form in which addresses
    are compared; see `speck.model.addresses`. Raises AddressError."""
    return merged_rules(ENGINES, BROKERS).normalise(address)


def is_encrypted(address: str) -> bool:
    """Whether connections to a normalised address use TLS."""
    scheme = merged_rules(ENGINES, BROKERS).schemes.get(address.partition(":")[0])
    return scheme is not None and scheme.encrypted
