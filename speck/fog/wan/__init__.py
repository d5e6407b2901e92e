"""A WAN between the sites of a fog: bandwidths, latencies, links that go down, traffic counters.

`model.py` describes a WAN and `load.py` reads one. `plan.py` (pure), `namespaces.py`, `delay.py`
and `forward.py` build it from network namespaces; `proxied.py` and `relay.py` imitate
it without root.
"""

from speck.fog.wan.load import load_wan
from speck.fog.wan.model import EVERYWHERE, LinkStatus, Mode, Uplink, Wan, WanState

__all__ = ["EVERYWHERE", "LinkStatus", "Mode", "Uplink", "Wan", "WanState", "load_wan"]
