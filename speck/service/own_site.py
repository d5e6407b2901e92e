"""What a site may register about itself, with its own token of role `site`.

Such a token lies at the site. Whoever has it must not make speck, which reaches every site, call a
host of its choice, send it another site's secret, or take another site's state for its own. Nor may
it attract the jobs of others: what placements and calibrations believe of a site (its tier, its
uplink, its labels) is for administrators to say.
"""

from __future__ import annotations

from collections.abc import Iterable

from speck.errors import ForbiddenError
from speck.model.site import STATE_URI, Site, Tier
from speck.sites.networks import SiteNetworks, is_below


class OwnSite:
    """Checks what a site says about itself."""

    def __init__(self, networks: SiteNetworks):
        self._networks = networks

    def find_allowed(self, site: Site) -> frozenset[str]:
        """The addresses of `site` that lie in allowed networks. Resolves names: hold no lock."""
        return frozenset(filter(self._networks.allows, site.addresses))

    def check(
        self, site: Site, known: Site | None, others: Iterable[Site], allowed: frozenset[str]
    ) -> None:
        """Raises ForbiddenError unless the site keeps what is registered (`known`), or says what
        its token may say; `allowed` is the result of `find_allowed`."""
        _refuse_other_kinds(site, known)
        _refuse_attractions(site, known)
        _refuse_others_secrets(site, known)
        for part in ("spe", "broker"):
            address = getattr(site, part).address
            if not address:  # it is reached through the site's agent
                continue
            if known is not None and getattr(known, part).address == address:
                continue
            if address not in allowed:
                raise ForbiddenError(
                    f"cannot register site {site.name!r} with its own token: {address} is no plain"
                    " address in a network that an administrator allowed (SPECK_SITE_NETWORKS);"
                    " have an administrator register the site (speck site add)"
                )
        self._refuse_state_elsewhere(site, known, others)

    def may_listen(self, site: Site, url: str) -> bool:
        """Whether other sites' agents may be sent to `url`, which the agent of `site` reports: the
        host of its own engine or broker, or an address in an allowed network."""
        own = {_host(site.spe.address), _host(site.broker.address)} - {""}
        plain = url.count("/") == 2
        return plain and (_host(url) in own or self._networks.allows(url))

    def _refuse_state_elsewhere(
        self, site: Site, known: Site | None, others: Iterable[Site]
    ) -> None:
        """Equal URIs are storage that two sites share: only an administrator knows that they do."""
        uri = site.state_uri
        if uri == (known.state_uri if known else None):
            return
        taken = [other.state_uri for other in others if other.name != site.name and other.state_uri]
        is_own = uri is not None and not any(
            is_below(uri, each) or is_below(each, uri) for each in taken
        )
        if uri is None or not is_own or not self._networks.allows_state(uri):
            raise ForbiddenError(
                f"cannot change the label state_uri of site {site.name!r} with its own token: it"
                " must lie below a prefix that an administrator allowed (SPECK_SITE_STATE_URIS) and"
                " belong to no other site; an administrator may set it"
            )


def _host(address: str) -> str:
    return address.partition("://")[2].rpartition(":")[0]


def _refuse_other_kinds(site: Site, known: Site | None) -> None:
    beside = known.spe.beside if known is not None else None
    if site.spe.beside != beside or (
        known is not None
        and (known.spe.kind, known.broker.kind) != (site.spe.kind, site.broker.kind)
    ):
        raise ForbiddenError(
            f"cannot change the kind of site {site.name!r} with its own token; ask an admin"
        )


def _refuse_attractions(site: Site, known: Site | None) -> None:
    """A site that registers itself is an edge with nothing known of its uplink; afterwards it keeps
    what an administrator said. The label `state_uri` has rules of its own."""
    before = known or Site(site.name, Tier.EDGE, site.spe, site.broker)
    changes = [
        field for field in ("tier", "uplink_mbps") if getattr(site, field) != getattr(before, field)
    ]
    labels = {key for key, _ in site.labels.items() ^ before.labels.items()} - {STATE_URI}
    changes += [f"labels.{key}" for key in sorted(labels)]
    if changes:
        raise ForbiddenError(
            f"cannot change {', '.join(changes)} of site {site.name!r} with its own token: jobs are"
            " placed by them; leave them as they are registered (a new site: tier edge, no uplink,"
            " no labels), or have an administrator set them (speck site add --replace)"
        )


def _refuse_others_secrets(site: Site, known: Site | None) -> None:
    """A site that registers itself may name only its own credentials, or keep those that it was
    given together with their address: otherwise speck would send another site's secret to a host
    that this site chooses."""
    for part in ("spe", "broker"):
        own, before = getattr(site, part), getattr(known, part) if known else None
        named, kept = own.credentials, before.credentials if before else None
        if named == site.name or (named is None and kept is None):
            continue
        if named is not None and before == own:
            continue
        raise ForbiddenError(
            f"cannot give site {site.name!r} the credentials {named!r}: its token may name only"
            f" {site.name!r}; an admin may name others"
        )
