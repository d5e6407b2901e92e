"""The use cases: the only place where observing, planning, executing and storing meet."""

from speck.service.service import Service

__all__ = ["Service"]
