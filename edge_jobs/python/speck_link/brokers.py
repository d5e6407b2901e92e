"""Which code speaks with which broker. What a job does not need is not imported: Kafka's client
takes 12 MB."""

from __future__ import annotations

from speck_link.arguments import Contract, Link, keeps_log
from speck_link.transport import Position, Reader, ReaderListener, Writer, WriterListener


def open_reader(
    contract: Contract, listener: ReaderListener, position: Position, *, read_before: bool
) -> Reader:
    """The reader of the job's source; it connects when it is tended."""
    if keeps_log(contract.source.broker):
        from speck_link.kafka.reader import KafkaReader

        return KafkaReader(contract, listener, position, read_before=read_before)
    from speck_link.mqtt.reader import MqttReader

    return MqttReader(contract, listener)


def open_writer(contract: Contract, link: Link, listener: WriterListener) -> Writer:
    """The writer of a link; it connects when it is tended."""
    if keeps_log(link.broker):
        from speck_link.kafka.writer import KafkaWriter

        return KafkaWriter(contract, link, listener)
    from speck_link.mqtt.writer import MqttWriter

    return MqttWriter(contract, link, listener)
