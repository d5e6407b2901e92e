"""What Kafka's errors mean: which are faults, of which kind, and how to mend them."""

from __future__ import annotations

import re
from typing import Any

from kafka import errors

from speck.errors import BrokerRefusedError, SpeckError, TransientError, UnreachableError

_SILENT = (
    errors.KafkaConnectionError,
    errors.KafkaTimeoutError,
    errors.NodeNotReadyError,
    errors.RequestTimedOutError,
    errors.UnknownBrokerIdError,
)
LOGIN = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
_LIVE_READER = (
    errors.UnknownMemberIdError,
    errors.NonEmptyGroupError,
    errors.GroupSubscribedToTopicError,
)


_NUMBER = re.compile(r"^\[Error -?[0-9]+\] ")


class LiveReaderError(TransientError):
    """Somebody reads as a member of the group that was to be changed."""


def is_passing(error: BaseException) -> bool:
    """Whether the same request may be answered soon: the cluster is about to know, or a connection
    has ended. The port answers before the coordinator of groups does."""
    return isinstance(error, (errors.RetriableError, errors.UnknownBrokerIdError, RuntimeError))


def explain(error: BaseException, address: str, doing: str) -> SpeckError:
    """The error of speck that an error of Kafka's client means; `doing` names what failed
    ("reserve ...")."""
    reason = describe(error)
    if isinstance(error, _SILENT):
        return UnreachableError(
            f"cannot reach the broker at {address} to {doing}: {reason}; if it runs, its"
            " advertised.listeners may name a host that does not lead there from here"
        )
    if isinstance(error, LOGIN):
        return BrokerRefusedError(
            f"cannot connect to the broker at {address}: {reason}; check the site's"
            " broker.credentials (user, password, mechanism)"
        )
    text = f"cannot {doing} at {address}: {reason}"
    if isinstance(error, errors.AuthorizationError):
        return BrokerRefusedError(f"{text}; let its user do that (kafka-acls)")
    if isinstance(error, _LIVE_READER):
        return LiveReaderError(f"{text}: a consumer of that group is connected; end it")
    if isinstance(error, errors.MessageSizeTooLargeError):
        return BrokerRefusedError(f"{text}; raise its message.max.bytes, or send smaller records")
    return TransientError(text) if is_passing(error) else BrokerRefusedError(text)


def describe(error: BaseException) -> str:
    """What an error of Kafka's client says, without its name before it; its name if that is all."""
    name = type(error).__name__
    words = _NUMBER.sub("", str(error))
    while words.startswith(name):
        words = words.removeprefix(name).lstrip(": ")
    return words or name.removesuffix("Error")


def raise_refused(kind: Any, address: str, doing: str) -> None:
    """Raises what a class of errors means that stands in an answer; `NoError` is none."""
    if kind is not errors.NoError:
        raise explain(kind(), address, doing)
