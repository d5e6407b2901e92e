"""What is asked of a broker over one MQTT connection: subscriptions and publications."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from paho.mqtt.client import MQTTMessage
from paho.mqtt.subscribeoptions import SubscribeOptions

from binders.mqtt.answers import NoAnswerError, TopicRefusedError, check_puback, check_suback
from binders.mqtt.channel import V5, Channel
from speck.model.values import cut, show

_FEW = 4
"""Messages that are sent before the broker has told its Receive Maximum; brokers take 20 or more,
unless configured otherwise."""


def read_topic(message: MQTTMessage) -> str | None:
    """The topic of a message; None if it is no UTF-8: a broker may send anything."""
    try:
        return message.topic
    except UnicodeDecodeError:
        return None


class Connection(Channel):
    """A channel with requests; those that wait raise what `Channel.wait` raises."""

    def pause(self) -> None:
        """Leave it idle: nothing is read until `resume`, and earlier answers are forgotten."""
        self._flush()
        self._on_message = None
        self._pubacks.clear()
        self._subacks.clear()

    def resume(
        self, deadline: float, on_message: Callable[[MQTTMessage], None] | None = None
    ) -> None:
        """Use an idle connection again. Its first answer shows whether it is still open."""
        self.deadline, self._on_message = deadline, on_message

    def subscribe(self, *topics: str) -> None:
        """Subscribe at QoS 1; the broker sends the retained messages."""
        self.await_suback(self.begin_subscribe(*topics), *topics)

    def begin_subscribe(self, *topics: str, retained: bool = True) -> int:
        """Like `subscribe`, without waiting; the result is for `await_suback`. With MQTT 5 and
        without `retained`, the broker sends no retained messages."""
        if self.version == V5:
            handling = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
            if not retained:
                handling = SubscribeOptions.RETAIN_DO_NOT_SEND
            options = SubscribeOptions(qos=1, retainHandling=handling)
            _, mid = self._client.subscribe([(topic, options) for topic in topics])
        else:
            _, mid = self._client.subscribe([(topic, 1) for topic in topics])
        self._has_request = True
        return mid or 0

    def await_suback(self, mid: int, *topics: str) -> None:
        """Wait until the broker has answered. Raises BrokerRefusedError if it refused one of the
        topics, which are the first of the subscription."""
        what = "subscribe to " + ", ".join(map(cut, topics))
        self.wait(lambda: mid in self._subacks, what)
        for topic, code in zip(topics, self._subacks.pop(mid), strict=False):
            check_suback(code, topic, self.address)

    def begin_unsubscribe(self, *topics: str) -> None:
        """Send the request; its answer is read with that to a later one."""
        self._client.unsubscribe(list(topics))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        """Publish at QoS 1 and wait for the acknowledgement; returns whether the topic has
        subscribers, as far as the broker reports this."""
        return self.await_puback(self.send(topic, payload, retain=retain), topic)

    def publish_all(self, messages: Mapping[str, bytes], *, retain: bool = False) -> None:
        """Publish messages by topic, as `publish_each` does."""
        self.publish_each(list(messages.items()), retain=retain)

    def publish_each(
        self, messages: Sequence[tuple[str, bytes]], *, retain: bool = False
    ) -> list[bool]:
        """Publish messages, each with its topic, at QoS 1 in this order, and wait for all
        acknowledgements at the end: one round trip, or more if the broker's Receive Maximum is
        lower. Returns for each what `publish` returns."""
        if len(messages) > _FEW:
            self._accept()  # it tells the Receive Maximum
        limit = self.connack.get("ReceiveMaximum", len(messages))
        in_flight: deque[tuple[int, str]] = deque()
        read = []
        for topic, payload in messages:
            if len(in_flight) >= limit:
                read.append(self.await_puback(*in_flight.popleft()))
            in_flight.append((self.send(topic, payload, retain=retain), topic))
        return read + [self.await_puback(mid, topic) for mid, topic in in_flight]

    def listen(self, seconds: float) -> None:
        """Hand over what comes within `seconds`, which become the connection's deadline. Raises
        LostError when the connection ends."""
        self.deadline = time.monotonic() + seconds
        with suppress(NoAnswerError):
            self.wait(lambda: False, "read")

    def send(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        """Publish at QoS 1 without waiting; the result is for `await_puback`."""
        try:
            mid = self._client.publish(topic, payload, qos=1, retain=retain).mid
        except ValueError as error:
            raise TopicRefusedError(f"cannot publish to {show(topic)}: {error}") from error
        self._has_request = True
        return mid

    def await_puback(self, mid: int, topic: str) -> bool:
        """Wait until the broker has acknowledged the message. Raises BrokerRefusedError if it
        refused it. False if it reports that the topic has no subscribers."""
        self.wait(lambda: mid in self._pubacks, f"publish to {cut(topic)}")
        return check_puback(self._pubacks.pop(mid), topic, self.address)
