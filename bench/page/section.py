"""One experiment's page in docs/results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.page.result import Result
from bench.page.words import number, table

MADE = "<!-- made by `make results` from bench/results/*.json: change those, not this -->"
MARKS = {True: "ok", False: "**NOT**", None: "not judged"}


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture: `alt` says in words what it shows; `draw` gives a matplotlib figure."""

    name: str
    alt: str
    draw: Callable[[Result], Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """The expected and the measured value; `ok` None: not judged."""

    name: str
    wanted: object
    measured: object
    ok: bool | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """How an experiment is shown.

    `name`: of its file in bench/results/, without `.json`. `target`: of the Makefile, without
    `bench-`. `figures` gives the key figures as Markdown. `claims`: for results that keep none of
    their own (`checks`), or whose own need other words. `headline`: rows of the
    README's table, (what was asked, what was measured).
    `differences`: where the experiment or its outcome differs from the paper or project that it
    repeats.
    """

    name: str
    title: str
    question: str
    set_up: str
    target: str
    figures: Callable[[Result], str]
    plots: Sequence[Plot] = ()
    claims: Callable[[Result], Sequence[Claim]] | None = None
    simulated: Sequence[str] = field(default=())
    root: bool = False
    headline: Callable[[Result], Sequence[tuple[str, str]]] | None = None
    differences: Callable[[Result], Sequence[str]] | None = None

    @property
    def page(self) -> str:
        """Its page, as docs/results.md names it."""
        return f"results/{self.target}.md"


def claims_of(section: Section, result: Result) -> list[Claim]:
    """Those worked out of the result, or its own checks."""
    if section.claims is not None:
        return list(section.claims(result))
    keys = ("name", "wanted", "measured", "ok", "note")
    return [Claim(**{key: each[key] for key in keys}) for each in result.get("checks", [])]


def made_of(result: Result) -> Result:
    """How and when it was made: see bench.common.provenance."""
    provenance = result.get("made", result)
    return provenance if isinstance(provenance, Result) else result


def markdown(section: Section, result: Result | None) -> str:
    """The page; one without a result says that it is missing."""
    parts = [f"# {section.title}", MADE, f"*{section.question}* {section.set_up}"]
    if result is None:
        how = f"`make bench-{section.target}`{', as root on Linux,' if section.root else ''}"
        parts.append(f"**Missing: not measured yet.** {how} measures it.")
        return "\n\n".join(parts)
    claims = claims_of(section, result)
    if wrong := [claim for claim in claims if claim.ok is False]:
        names = "; ".join(claim.name for claim in wrong)
        parts.append(f"> **{len(wrong)} of {len(claims)} checks failed:** {names}.")
    parts += [f"![{plot.alt}](../plots/{plot.name}.svg)" for plot in section.plots]
    parts.append(section.figures(result))
    if section.differences is not None:
        lines = [f"- {_sentence(it)}" for it in section.differences(result)]
        parts.append("Differences from the source:\n\n" + "\n".join(lines))
    if claims:
        parts.append(_checks(claims))
    if simulated := [*section.simulated, *result.get("simulated", [])]:
        parts.append("Simulated: " + " ".join(_sentence(it) for it in simulated))
    parts.append(_repeat(section, result))
    return "\n\n".join(part for part in parts if part)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _checks(claims: Sequence[Claim]) -> str:
    rows = [
        (
            MARKS[claim.ok],
            claim.name,
            _measured(claim.wanted),
            _measured(claim.measured),
            claim.note,
        )
        for claim in claims
    ]
    if not any(claim.note for claim in claims):
        return table(["check", "what", "wanted", ">measured"], [row[:4] for row in rows])
    return table(["check", "what", "wanted", ">measured", "note"], rows)


def _measured(value: object) -> object:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_measured(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(str(_measured(each)) for each in value)
    return number(value) if isinstance(value, int | float) else value


def _repeat(section: Section, result: Result) -> str:
    root = " as root on Linux" if section.root else ""
    words = [f"Repeat: `make bench-{section.target}`{root}"]
    provenance = made_of(result)
    if "at" in provenance:
        words.append(
            f", {number(provenance['seconds'] / 60)} min of runs; measured {provenance['at']}"
        )
    else:
        words.append("; measured before dates and commits were kept")
    if "code" in provenance:
        words.append(f", code {provenance['code']}")
    rows = " (`rows`: every run)" if isinstance(result.get("rows"), list) else ""
    where = f"[bench/results/{result.file}](../../bench/results/{result.file}){rows}"
    return "".join(words) + f". Data: {where}."
