"""Engines and brokers that live in this process: for tests, and for trying speck out.

A binder opened on an address sees what any other binder of the same address sees, since both
look into `World.current()`. A test starts with `World.reset()`.
"""

from binders.memory.broker import MemoryBroker
from binders.memory.engine import MemoryEngine
from binders.memory.messages import Message
from binders.memory.world import World

__all__ = ["MemoryBroker", "MemoryEngine", "Message", "World"]
