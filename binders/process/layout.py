"""How the runner lays out the states of programs below a site's state folder.

A program's state is one folder, in which it goes on. Its number is the file `checkpoint`: eight
bytes, the highest first, which the program raises after each step. A copy gets its name once it is
whole (`speck.runner.claims`), so that a copy that was cut short is no state.
"""

from __future__ import annotations

from speck.binding import StateLayout, StatePlace

LAYOUT = StateLayout(
    places=(StatePlace("programs/{job}/state"),), proofs=("checkpoint",), number_at=0
)
