"""Placement policies from research, to compare the others with: RoLBTS, FSACE, CAPS, top-down; and
the file of flink-placement.

Each policy is an entry point of group `speck.policies`, as one of another package would be: a
class, or a function, that takes nothing and returns a `speck.placement.model.Policy`. They import
`speck.placement`, which never imports them. Begin with `balance.py`; `rolbts.py` and
`rolbts_exact.py` hold the paper's algorithm on servers and branches.
"""
