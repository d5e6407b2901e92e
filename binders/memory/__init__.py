"""Engines and brokers in this process, for tests and for trying speck out.

All binders of the same address share one engine or broker in `World.current()`. A test begins with
`World.reset()`.
"""

from binders.memory.broker import MemoryBroker
from binders.memory.engine import MemoryEngine
from binders.memory.messages import Message
from binders.memory.world import World

__all__ = ["MemoryBroker", "MemoryEngine", "Message", "World"]
