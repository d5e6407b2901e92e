"""What names an artifact, and therefore keeps it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping

from speck.model.change import ChangeState
from speck.model.composition import job_posted_alone, title, visible_name
from speck.model.values import JsonObject
from speck.store.records import Records


def find_uses(records: Records) -> Mapping[str, list[JsonObject]]:
    """SHA-256 -> `{composition, job_name, revision}` of each revision that names it, and of what is
    deployed from it (then `revision` is null).

    The revisions of a removed composition keep nothing: there is no way back to them.
    """
    uses: defaultdict[str, list[JsonObject]] = defaultdict(list)
    live = {head["name"] for head in records.heads.values() if not head.get("deleted")}
    for (scope, revision), jars in records.jars_of_revisions().items():
        if scope in live:
            for sha256 in jars:
                uses[sha256].append(_use(scope, None, revision))
    # in order, each once
    deployed: dict[tuple[str, str, str | None], None] = {
        (incarnation.job.jar, scope, job_name): None
        for (scope, job_name), incarnation in records.all_incarnations().items()
    }
    for scope, session in records.all_sessions():  # what waits there may be for another version
        if session.job is not None:
            deployed.setdefault((session.job.jar, scope, session.job_name))
    for scope, sink in records.all_ended_sinks():
        deployed.setdefault((sink.incarnation.job.jar, scope, sink.incarnation.job.job_name))
    for jar, scope, job_name in deployed:
        uses[jar].append(_use(scope, job_name, None))
    return uses


def is_used(records: Records, sha256: str) -> bool:
    """Whether `find_uses` would list any use of an artifact."""
    if records.deployed.uses_jar(sha256):
        return True
    if any(sink.incarnation.job.jar == sha256 for _, sink in records.all_ended_sinks()):
        return True
    for (scope, _), jars in records.jars_of_revisions().items():
        if sha256 in jars and not (records.heads.get(scope) or {"deleted": True}).get("deleted"):
            return True
    return False


def find_in_changes(records: Records, sha256s: Collection[str]) -> set[str]:
    """Those artifacts that an operation of a change under way names."""
    under_way = [
        change["id"] for change in records.changes() if not ChangeState(change["state"]).over
    ]
    texts = [json.dumps(records.operations(change_id)) for change_id in under_way]
    return {sha256 for sha256 in sha256s if any(sha256 in text for text in texts)}


def describe_use(use: JsonObject) -> str:
    """`revision 3 of composition 'c'`, or `job 'A'`."""
    if use["composition"] is None:
        return f"job {use['job_name']!r}"
    what = title(use["composition"])
    return f"revision {use['revision']} of {what}" if use["revision"] else f"a job of {what}"


def _use(scope: str, job_name: str | None, revision: int | None) -> JsonObject:
    alone = job_posted_alone(scope)
    return {
        "composition": visible_name(scope),
        "job_name": alone or job_name,
        "revision": revision,
    }
