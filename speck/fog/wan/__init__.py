"""A WAN between the sites of a fog: bandwidths, latencies, links that go down, bytes counted."""

from speck.fog.wan.load import load_wan
from speck.fog.wan.model import EVERYWHERE, LinkStatus, Mode, Uplink, Wan, WanState

__all__ = ["EVERYWHERE", "LinkStatus", "Mode", "Uplink", "Wan", "WanState", "load_wan"]
