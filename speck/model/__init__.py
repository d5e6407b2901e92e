"""The nouns as plain data: jobs, sites, links, compositions, plans, changes, incarnations, and
the reports of engines and brokers.

Pure: no I/O, no clock; imports `speck.errors` only. Begin with `job`, `link` and `plan`.
"""
