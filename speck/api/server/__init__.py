"""`speck serve`: the application in gunicorn, and what it does with connections. This is its door:
nobody in speck imports its modules otherwise.

| module | content |
|---|---|
| `process` | gunicorn's master and its one worker's life, around the store |
| `start_check` | why the service cannot start |
| `worker` | one loop for all connections, threads for requests only |
| `connection` | one client's connection, which never makes the loop wait |
| `minimum_rates` | how slow a client may be |
| `unavailable_app` | what answers while the disk is too full to open the store |
| `memory` | gives memory back to the system |

Begin with `process`.
"""

from speck.api.server.process import end_with_parent, serve

__all__ = ["end_with_parent", "serve"]
