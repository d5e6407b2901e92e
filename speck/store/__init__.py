"""The durable state: LevelDB, the records of each noun, and their retention.

Imports `speck.model` and `speck.spec`; `leveldb` alone imports plyvel. Begin with `records`.
"""
