package io.speck.mqtt.connection;

import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.datatypes.MqttTopic;
import com.hivemq.client.mqtt.mqtt3.message.publish.Mqtt3Publish;
import io.speck.link.protocol.Message;
import io.speck.link.transport.IncomingMessages;
import java.nio.ByteBuffer;

/** Messages that came by MQTT 3.1.1: without properties. */
final class Mqtt3Messages implements IncomingMessages {
    private final int topicBytes;
    private final MqttTopic marks;

    Mqtt3Messages(int topicBytes, MqttTopic marks) {
        this.topicBytes = topicBytes;
        this.marks = marks;
    }

    @Override
    public byte[] payloadOf(Object message) {
        return ((Mqtt3Publish) message).getPayloadAsBytes();
    }

    @Override
    public int sizeOf(Object message) {
        return ((Mqtt3Publish) message).getPayload().map(ByteBuffer::remaining).orElse(0);
    }

    @Override
    public int packetSizeOf(Object message) {
        return PacketSize.ofPublish(
                topicBytes, isAcknowledged(message), PacketSize.NO_PROPERTIES, sizeOf(message));
    }

    @Override
    public String stampOf(Object message) {
        return null;
    }

    @Override
    public Message.Format formatOf(Object message) {
        return Message.Format.PLAIN; // there is nothing by which to recognise a batch
    }

    @Override
    public boolean isMark(Object message) {
        return ((Mqtt3Publish) message).getTopic().equals(marks);
    }

    @Override
    public boolean isAcknowledged(Object message) {
        return ((Mqtt3Publish) message).getQos() != MqttQos.AT_MOST_ONCE;
    }
}
