"""Shapes of what a restored service finds."""

from __future__ import annotations

from speck.api.shapes.base import Shape, integer, list_of, nullable_text, one_of, text


class EngineJobShape(Shape):
    site = text()
    engine_job_id = text()
    job_name = text("as the engine names it if the store does not know the job")
    composition = nullable_text()
    generation = integer("of the store that started it")
    attempt = integer()
    state = text("as the engine reports it")


class MissingJobShape(Shape):
    job_name = text()
    composition = nullable_text()
    site = text()
    engine_job_id = text()


class UncertainJobShape(Shape):
    job_name = text()
    composition = nullable_text()
    site = text()


class UnknownSessionShape(Shape):
    site = text("of the broker")
    client_id = text()
    job_name = text()
    topic = nullable_text("null: no known topic fits the client id")
    messages = integer(
        "how many wait in it at least, by the numbers of sinks; null: no sink reports any",
        allow_none=True,
    )


class RestoredShape(Shape):
    state = one_of(("normal", "restored"))
    at = nullable_text("since when")
    reason = nullable_text("why: the store was restored from a backup, or its folder was copied")
    generation = integer("of the store: raised by each restore")
    unknown_jobs = list_of(EngineJobShape)
    missing_jobs = list_of(MissingJobShape)
    unknown_sessions = list_of(UnknownSessionShape)
    silent_sites = list_of(text("a site whose engine or broker does not answer"))


class AdoptedShape(Shape):
    adopted = list_of(EngineJobShape)
    cancelled = list_of(EngineJobShape)
    uncertain = list_of(UncertainJobShape)
    kept_sessions = list_of(UnknownSessionShape)
    released_sessions = list_of(UnknownSessionShape)
