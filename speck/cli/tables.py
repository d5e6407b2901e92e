"""Tables that more than one command prints."""

from __future__ import annotations

from collections.abc import Mapping

from speck.cli.output import Grid
from speck.model.values import JsonObject, cut


def restored(report: JsonObject | None) -> list[str | Grid]:
    """What a restored or copied service finds, and how to go on; nothing without a report."""
    if report is None:
        return []
    jobs = [
        (what, job["job_name"], job["site"], job["engine_job_id"])
        for what, noun in (("unknown, runs", "unknown_jobs"), ("does not run", "missing_jobs"))
        for job in report[noun]
    ]
    jobs += [
        (
            f"unknown reader: {count_messages(each)}",
            each["job_name"],
            each["site"],
            each["client_id"],
        )
        for each in report["unknown_sessions"]
    ]
    jobs += [("does not answer", "", site, "") for site in report["silent_sites"]]
    title = (
        f"The store may be older than what runs since {report['at']}: {report['reason']}; nothing"
        " starts until `speck adopt`"
    )
    nothing = f"{title}; what runs is what the store says"
    return [Grid(("finding", "job", "site", "id"), jobs, title, nothing), ""]


def count_messages(session: JsonObject) -> str:
    """How many messages wait in a session that no known job reads."""
    if session["messages"] is None:
        return "messages may wait"
    if session["messages"] == 0:
        return "nothing waits that a job sent"
    return f"at least {session['messages']} messages wait"


def sites(records: list[JsonObject], title: str | None = None) -> Grid:
    """Sites with their state, slots and addresses, and why an engine or broker does not answer."""
    rows = [
        (
            site["name"],
            site["tier"],
            site["state"],
            site["slots"]["free"],
            site["slots"]["total"],
            site["spe"].get("address") or "",
            site["broker"]["address"],
            site["engine_version"],
            site["error"],
        )
        for site in records
    ]
    headings = ["name", "tier", "state", "free", "slots", "engine", "broker", "version"]
    empty = "no sites; register one with `speck site add`, or try `speck fog up`"
    dispensable = ("version", "broker", "engine")
    if any(row[-1] for row in rows):
        return Grid((*headings, "error"), rows, title, empty, dispensable)
    return Grid(headings, [row[:-1] for row in rows], title, empty, dispensable)


def compositions(heads: list[JsonObject], states: Mapping[str, Mapping[str, int]]) -> Grid:
    """Compositions with their desired and deployed revisions, and the number of their jobs in
    each state (including jobs that are being removed)."""
    return Grid(
        ("name", "revision", "deployed", "jobs", "states"),
        [
            (
                head["name"],
                head["revision"],
                head["deployed_revision"],
                sum(states.get(head["name"], {}).values()) or head["jobs"],
                ", ".join(f"{n} {state}" for state, n in sorted(states[head["name"]].items()))
                if head["name"] in states
                else None,
            )
            for head in heads
        ],
        "Compositions",
        "no compositions; apply one with `speck apply FILE`",
    )


def _state_of(job: JsonObject) -> str:
    times = job["failures"]
    return f"{job['state']} ({times}x)" if times else str(job["state"])


def jobs(records: list[JsonObject], title: str | None = None) -> Grid:
    """Jobs with their sites and links."""
    rows = [
        (
            job["job_name"],
            job["composition"],
            job["site"],
            _state_of(job),
            job["attempt"],
            cut(job["source_topic"]),
            cut(job["sink_topic"]),
            job["records_left_out"],
            job["records_lost"],
            job["sessions_lost"],
            job["error"],
        )
        for job in records
    ]
    headings = ["name", "composition", "site", "state", "attempt", "source", "sink"]
    headings += ["left out", "lost", "lost sessions", "error"]
    # the last four only where there is something to say
    shown = [n for n in range(len(headings)) if n < 7 or any(row[n] for row in rows)]
    cells = [tuple(row[n] for n in shown) for row in rows]
    dispensable = ("attempt", "composition", "sink", "source")
    return Grid([headings[n] for n in shown], cells, title, "no jobs", dispensable)
