"""Access to sites: open connections, polls of their engines and brokers, agents' commands.

Imports `speck.store` and the contracts in `speck.binding`. Begin with `connections`.
"""
