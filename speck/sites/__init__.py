"""Access to sites: open connections, polls of engines and brokers, agents' commands, transfers of
state.

Imports `speck.store` and the contracts in `speck.binding`. Begin with `connections`.
"""
