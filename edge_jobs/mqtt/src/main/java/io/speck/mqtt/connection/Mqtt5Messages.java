package io.speck.mqtt.connection;

import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.datatypes.MqttTopic;
import com.hivemq.client.mqtt.datatypes.MqttUtf8String;
import com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserProperty;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.Stamp;
import io.speck.link.transport.IncomingMessages;
import java.util.List;

/** Messages that came by MQTT 5. */
final class Mqtt5Messages implements IncomingMessages {
    static final MqttUtf8String STAMP = MqttUtf8String.of(Stamp.PROPERTY);
    static final MqttUtf8String BATCH =
            MqttUtf8String.of(Message.Format.BATCH.contentType());
    static final MqttUtf8String ZSTD_BATCH =
            MqttUtf8String.of(Message.Format.ZSTD_BATCH.contentType());

    private static final int SUBSCRIPTION_IDENTIFIER = 2; // property and value

    private final int topicBytes;
    private final MqttTopic marks;
    private volatile int identifierBytes; // known when the connection is ready

    Mqtt5Messages(int topicBytes, MqttTopic marks) {
        this.topicBytes = topicBytes;
        this.marks = marks;
    }

    /** Each message brings an identifier of its subscription, where the broker knows them. */
    void expectSubscriptionIdentifiers(boolean available) {
        identifierBytes = available ? SUBSCRIPTION_IDENTIFIER : 0;
    }

    @Override
    public byte[] payloadOf(Object message) {
        return ((Mqtt5Publish) message).getPayloadAsBytes();
    }

    @Override
    public int sizeOf(Object message) {
        return HiveMqInternals.payloadSizeOf(message);
    }

    @Override
    public int packetSizeOf(Object message) {
        int properties = identifierBytes + HiveMqInternals.propertyBytesOf(message);
        return PacketSize.ofPublish(
                topicBytes, isAcknowledged(message), properties, sizeOf(message));
    }

    @Override
    public String stampOf(Object message) {
        List<? extends Mqtt5UserProperty> properties =
                ((Mqtt5Publish) message).getUserProperties().asList();
        for (int i = 0; i < properties.size(); i++) {
            Mqtt5UserProperty property = properties.get(i);
            if (property.getName().equals(STAMP)) {
                return property.getValue().toString();
            }
        }
        return null;
    }

    @Override
    public Message.Format formatOf(Object message) {
        MqttUtf8String type = HiveMqInternals.contentTypeOf(message);
        if (type == null) {
            return Message.Format.PLAIN;
        }
        if (type.equals(ZSTD_BATCH)) {
            return Message.Format.ZSTD_BATCH;
        }
        return type.equals(BATCH) ? Message.Format.BATCH : Message.Format.PLAIN;
    }

    @Override
    public boolean isMark(Object message) {
        return ((Mqtt5Publish) message).getTopic().equals(marks);
    }

    @Override
    public boolean isAcknowledged(Object message) {
        return ((Mqtt5Publish) message).getQos() != MqttQos.AT_MOST_ONCE;
    }
}
