"""bench.store: kill -9 of a process that writes."""

from __future__ import annotations

from collections.abc import Sequence

from bench.page.result import Result
from bench.page.section import Claim, Section
from bench.page.words import key_figures


def _figures(result: Result) -> str:
    return key_figures(
        [("rounds", result["rounds"]), ("synced writes that were told", result["writes_told"])]
    )


def _claims(result: Result) -> Sequence[Claim]:
    return [
        Claim("writes lost", "0", result["lost"], result["lost"] == 0),
        Claim("writes torn", "0", result["torn"], result["torn"] == 0),
    ]


SECTION = Section(
    name="store",
    title="The store",
    question="What does `kill -9` leave of synced writes?",
    set_up="A process that writes from several threads is killed at a random moment; the store is"
    " opened again and compared with what it had told.",
    target="store",
    figures=_figures,
    claims=_claims,
)
