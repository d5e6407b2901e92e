"""What names an artifact, and therefore keeps it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from speck.model.artifact import ArtifactUse
from speck.store.records import Records


def find_uses(records: Records) -> Mapping[str, list[ArtifactUse]]:
    """SHA-256 -> the revisions that name it, and what is deployed from it.

    The revisions of a removed composition keep nothing: there is no way back to them.
    """
    uses: defaultdict[str, list[ArtifactUse]] = defaultdict(list)
    live = {head.name for head in records.compositions.heads()}
    for (scope, revision), artifacts in records.compositions.artifacts_of_revisions().items():
        if scope in live:
            for sha256 in artifacts:
                uses[sha256].append(ArtifactUse.of(scope, None, revision))
    # in order, each once
    deployed: dict[tuple[str, str, str | None], None] = {
        (incarnation.job.artifact, scope, job_name): None
        for (scope, job_name), incarnation in records.incarnations.all().items()
    }
    for scope, session in records.sessions.all():  # what waits there may be for another version
        if session.job is not None:
            deployed.setdefault((session.job.artifact, scope, session.job_name))
    for scope, sink in records.ended_sinks.all():
        deployed.setdefault((sink.incarnation.job.artifact, scope, sink.incarnation.job.job_name))
    for artifact, scope, job_name in deployed:
        uses[artifact].append(ArtifactUse.of(scope, job_name, None))
    return uses


def is_used(records: Records, sha256: str) -> bool:
    """Whether `find_uses` would list any use of an artifact."""
    if records.incarnations.uses_artifact(sha256) or records.sessions.uses_artifact(sha256):
        return True
    if any(sink.incarnation.job.artifact == sha256 for _, sink in records.ended_sinks.all()):
        return True
    return any(
        sha256 in artifacts and records.compositions.head(scope) is not None
        for (scope, _), artifacts in records.compositions.artifacts_of_revisions().items()
    )


def find_in_changes(records: Records, sha256s: Collection[str]) -> set[str]:
    """Those artifacts that an operation of a change under way names."""
    under_way = [change.id for change in records.changes.heads() if not change.state.over]
    texts = [str(records.changes.operations(change_id)) for change_id in under_way]
    return {sha256 for sha256 in sha256s if any(sha256 in text for text in texts)}
