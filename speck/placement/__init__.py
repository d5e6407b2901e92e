"""Which job should run at which site: policies over measured loads. Pure, no I/O.

`(loads, flows, sites, limits) -> placement with reasons`; see `speck.placement.model`.
"""
