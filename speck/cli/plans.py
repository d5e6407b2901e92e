"""Renders a plan for people: what happens to each job and why, and a summary line."""

from __future__ import annotations

from speck.cli.messages import CommandFailed, clean, say, style
from speck.model.values import JsonObject

SIGNS = {"add": "+", "update": "~", "move": "→", "remove": "-"}
_NAMED = 3
_COLOURS = {"add": "green", "update": "yellow", "move": "cyan", "remove": "red"}


def changes_anything(plan: JsonObject) -> bool:
    """Whether the plan changes anything."""
    return bool(plan["operations"]) or any(plan["summary"].get(action) for action in SIGNS)


def render(plan: JsonObject, *, operations: bool = False) -> str:
    """Render one line for each job that changes and each queue that is dropped, on demand the
    operations, then the summary."""
    jobs = [job for job in plan["jobs"] if job["action"] in SIGNS]
    name_width = max((len(job["job_name"]) for job in jobs), default=0)
    places = [_place(job) for job in jobs]
    place_width = max(map(len, places), default=0)
    lines = [
        _line(job, f"{job['job_name']:{name_width}}  {place:{place_width}}")
        for job, place in zip(jobs, places, strict=True)
    ]
    lines += render_queues(plan)
    if plan["reverts_to"] is not None:
        lines.append(
            f"  first, {clean(', '.join(plan['reverting']))} go back to revision"
            f" {plan['reverts_to']}: the change before this one ended early"
        )
    if operations and plan["operations"]:
        steps = plan["text"].splitlines()[len(plan["queues"]) :]
        lines += [*([""] if lines else []), clean("\n".join(steps)), ""]
    return "\n".join([*lines, summary(plan)])


def summary(plan: JsonObject) -> str:
    """The summary line."""
    counts = plan["summary"]
    unchanged = counts.get("unchanged", 0)
    if not changes_anything(plan):
        return f"no changes: {unchanged} job{'' if unchanged == 1 else 's'} as desired"
    parts = [f"{counts.get(action, 0)} to {action}" for action in SIGNS]
    steps = len(plan["operations"])
    return (
        f"plan: {', '.join(parts)}, {unchanged} unchanged"
        f" ({steps} operation{'' if steps == 1 else 's'})"
    )


def render_queues(plan: JsonObject) -> list[str]:
    """One line for each queue that the plan drops, and one for those that it may drop."""
    lines = [style("! ", fg="red") + clean(queue["text"]) for queue in plan["queues"]]
    drained = sorted({o["job_name"] for o in plan["operations"] if o["kind"] == "drain"})
    limit_s = plan["drain_limit_s"]
    if limit_s and drained:
        more = f" and {len(drained) - _NAMED} more" if len(drained) > _NAMED else ""
        take = "takes" if len(drained) == 1 else "take"
        lines.append(
            f"  {clean(', '.join(drained[:_NAMED]))}{more} {take} first what waits, for"
            f" {limit_s:g} s at most; what is left then is dropped"
        )
    return lines


def show_dropped(change: JsonObject) -> None:
    """Print the queues that a change has dropped, with what has become known of their sizes."""
    for queue in change["dropped"]:
        say(queue["text"], "! ", "red")


def refuse_dropping(plan: JsonObject, what: str, *, allowed: bool) -> None:
    """Raises CommandFailed if the plan drops queues and that is not `allowed`."""
    if plan["queues"] and not allowed:
        raise CommandFailed(
            f"cannot {what}: it {_drop(plan, 'drops')}, named above; to drop"
            f" {'it' if len(plan['queues']) == 1 else 'them'}, use --drop-queues"
        )


def ask_to_drop(plan: JsonObject) -> str:
    """The end of a question: what else is agreed to."""
    return f" and {_drop(plan, 'drop')}" if plan["queues"] else ""


def _drop(plan: JsonObject, verb: str) -> str:
    count = len(plan["queues"])
    return f"{verb} a queue" if count == 1 else f"{verb} {count} queues"


def _line(job: JsonObject, middle: str) -> str:
    action = job["action"]
    mark = style(f"{SIGNS[action]} {action:6}", fg=_COLOURS[action])
    return f"{mark}  {clean(middle)}  {clean(job['reason'])}".rstrip()


def _place(job: JsonObject) -> str:
    if job["action"] == "move":
        return f"{job['from']} → {job['to']}"
    return str(job["to"] or job["from"] or "")
