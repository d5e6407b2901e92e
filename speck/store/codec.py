"""Model <-> plain JSON objects for the store; compact, since a store holds thousands of them."""

from __future__ import annotations

from dataclasses import asdict, astuple, fields, replace
from typing import Any

from speck.model.incarnation import Carried, Incarnation, Left, Session, StaleSink
from speck.model.job import Compression, Delivery, DesiredState, Job, Sending, Upgrade
from speck.model.link import Link
from speck.model.observation import TakenEpoch
from speck.model.site import Broker, Engine, Site, Tier
from speck.model.values import JsonObject


def job_to_json(job: Job) -> JsonObject:
    """A resolved job; fields that hold their default are left out."""
    # not asdict(): that copies deeply, and each step of a start writes its job
    data: JsonObject = {name: getattr(job, name) for name in _JOB_FIELDS}
    data["source"] = [job.source.broker, job.source.topic]
    data["sink"] = [job.sink.broker, job.sink.topic]
    data["link"] = asdict(job.link) if job.link != Sending() else None
    return {key: value for key, value in data.items() if value != _JOB_DEFAULTS.get(key, _UNSET)}


def job_from_json(data: JsonObject) -> Job:
    """The inverse of `job_to_json`."""
    given: dict[str, Any] = {**_JOB_DEFAULTS, **data}
    return Job(
        **{
            **given,
            "source": Link(*given["source"]),
            "sink": Link(*given["sink"]),
            "args": tuple(given["args"]),
            "state": DesiredState(given["state"]),
            "delivery": Delivery(given["delivery"]),
            "upgrade": Upgrade(given["upgrade"]),
            "link": _sending_from_json(given["link"] or {}),
        }
    )


def _sending_from_json(data: JsonObject) -> Sending:
    told = Sending(**data)
    return replace(told, compression=Compression(told.compression))


def incarnation_to_json(deployed: Incarnation) -> JsonObject:
    """An incarnation with the one it continues, if that still matters."""
    told: JsonObject = {
        "confirmed": deployed.confirmed,
        "ended": deployed.ended,
        "savepoint": deployed.savepoint,
        "base": incarnation_to_json(deployed.base) if deployed.base else None,
        "accepted": deployed.accepted,
        "void": deployed.void,
        "stopping": deployed.stopping,
        "former_sinks": list(deployed.former_sinks),
        "restored": deployed.restored,
        "carried": list(astuple(deployed.carried)) if deployed.carried else None,
        "left": [list(astuple(left)) for left in deployed.left],
        "stale": [[s.site, s.link.broker, s.link.topic, s.client_id] for s in deployed.stale],
    }
    return {
        "job": job_to_json(deployed.job),
        "attempt": deployed.attempt,
        "id": deployed.engine_job_id,
        **{key: value for key, value in told.items() if value},
    }


def incarnation_from_json(data: JsonObject) -> Incarnation:
    """The inverse of `deployed_to_json`."""
    return Incarnation(
        job=job_from_json(data["job"]),
        attempt=data["attempt"],
        engine_job_id=data["id"],
        confirmed=data.get("confirmed", False),
        ended=data.get("ended", False),
        savepoint=data.get("savepoint"),
        base=incarnation_from_json(data["base"]) if data.get("base") else None,
        accepted=data.get("accepted", False),
        void=data.get("void", False),
        stopping=data.get("stopping", False),
        former_sinks=tuple(data.get("former_sinks", ())),
        restored=data.get("restored"),
        carried=Carried(*data["carried"]) if data.get("carried") else None,
        left=tuple(Left(*left) for left in data.get("left", ())),
        stale=tuple(
            StaleSink(site, Link(broker, topic), client_id)
            for site, broker, topic, client_id in data.get("stale", ())
        ),
    )


def session_to_json(session: Session) -> JsonObject:
    handover: JsonObject = {
        "follows": session.follows,
        "followed_by": session.followed_by,
        "former": session.former,
        "skip": [[s.producer, s.epoch, s.upto, *map(list, s.above)] for s in session.skip],
        "drained": session.drained,
        "beside": session.beside,
    }
    return {
        "client_id": session.client_id,
        "link": [session.link.broker, session.link.topic],
        "site": session.site,
        "job_name": session.job_name,
        "reserved": session.reserved,
        "owed": [list(each) for each in session.owed],
        **{key: value for key, value in handover.items() if value},
    }


def session_from_json(data: JsonObject) -> Session:
    owed = tuple((producer, epoch, number) for producer, epoch, number in data.get("owed", ()))
    skip = tuple(
        TakenEpoch(producer, epoch, upto, tuple((first, last) for first, last in above))
        for producer, epoch, upto, *above in data.get("skip", ())
    )
    return Session(**{**data, "link": Link(*data["link"]), "owed": owed, "skip": skip})


def site_to_json(site: Site) -> JsonObject:
    return asdict(site)


def site_from_json(data: JsonObject) -> Site:
    return Site(
        name=data["name"],
        tier=Tier(data["tier"]),
        spe=Engine(**data["spe"]),
        broker=Broker(**data["broker"]),
        uplink_mbps=data["uplink_mbps"],
        labels=data["labels"],
    )


_UNSET = object()
_JOB_FIELDS = tuple(each.name for each in fields(Job))
_JOB_DEFAULTS: JsonObject = {
    "args": (),
    "parallelism": 1,
    "state": DesiredState.RUNNING,
    "delivery": Delivery.AT_LEAST_ONCE,
    "upgrade": Upgrade.SAVEPOINT,
    "pinned": False,
    "link": None,
}
