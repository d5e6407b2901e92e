"""The shape of what was forgotten by force."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import Shape, list_of, one_of, text


class LeftEngineJobShape(Shape):
    job_name = text()
    site = text()
    engine_job_id = text("its id at the engine, where it may still run")


class LeftSessionShape(Shape):
    site = text("the site of the broker")
    client_id = text()
    topic = text()


class LeftoversShape(Shape):
    engine_jobs = list_of(LeftEngineJobShape)
    sessions = list_of(LeftSessionShape)
    artifacts = list_of(text("SHA-256 of a jar"))


class ForgottenShape(Shape):
    kind = one_of(("job", "composition", "site"))
    name = text()
    changes = list_of(text("id of a change that was ended for it"))
    left = fields.Nested(LeftoversShape, required=True)
