"""How Flink lays out checkpoints and savepoints below a site's state folder.

A state is complete once it has its `_metadata`: Flink writes that file last, by another name, and
renames it. It begins with a magic number and a version of four bytes each, and the id, which rises
over checkpoints and savepoints together.
"""

from __future__ import annotations

from speck.binding import StateLayout, StatePlace

LAYOUT = StateLayout(
    places=(
        StatePlace("checkpoints/{job}/chk-#"),
        StatePlace("savepoints/**/{job}", on_request=True),
        StatePlace("savepoints/**/{job}/*", on_request=True),
    ),
    proofs=("_metadata",),
    requested="savepoints/{name}/{job}",
    magic="4960672d",
    number_at=8,
    own="chk-#",
    # how `_metadata` names a file outside its own folder; files inside it have relative names
    foreign="/[ -~]*/[0-9a-f]{32}/(?:shared|taskowned)/[0-9a-f-]{36}",
    hint=(
        ", as with incremental checkpoints: turn execution.checkpointing.incremental off, or move"
        " the job while its engine can take a savepoint"
    ),
)
