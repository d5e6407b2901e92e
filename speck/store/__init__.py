"""What survives a restart: LevelDB, the records of each noun, and how long they are kept.

Imports `speck.model` and `speck.spec`; `leveldb` alone imports plyvel. Begin with `records`.
"""
