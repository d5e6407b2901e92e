"""The use cases: the only place where observing, planning, executing and storing meet.

Begin reading at `foundation` (the store, how sites are reached, what is known of them) and
`service` (all that stands on it): each makes its parts in phases, of what was made before. A module
is the use cases of one noun; it takes and returns records, or raises, and knows no HTTP.
"""

from __future__ import annotations

from speck.service.service import Service

__all__ = ["Service"]
