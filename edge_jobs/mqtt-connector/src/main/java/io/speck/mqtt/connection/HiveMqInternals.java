package io.speck.mqtt.connection;

import com.hivemq.client.internal.mqtt.MqttClientConnectionConfig;
import com.hivemq.client.internal.mqtt.handler.ping.MqttPingHandler;
import com.hivemq.client.internal.mqtt.handler.publish.incoming.MqttIncomingQosHandler;
import com.hivemq.client.internal.mqtt.message.ping.MqttPingReq;
import com.hivemq.client.internal.mqtt.message.ping.MqttPingResp;
import com.hivemq.client.internal.mqtt.message.publish.MqttPublish;
import com.hivemq.client.internal.mqtt.message.publish.puback.MqttPubAck;
import com.hivemq.client.mqtt.datatypes.MqttUtf8String;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import java.nio.ByteBuffer;

/**
 * All that we use of the HiveMQ client's internal classes, because its public interface has no way
 * to do it. {@code HiveMqInternalsTest} names the version for which this was written: whoever takes
 * another one looks here first.
 */
final class HiveMqInternals {
    /** The property's identifier. */
    private static final int IDENTIFIER = 1;

    private static final int EXPIRY = 4;
    private static final int FORMAT_INDICATOR = 1;
    private static final int DATA_LENGTH = 2;

    private HiveMqInternals() {}

    // ---- the connection

    static Channel channelOf(Object connectionConfig) {
        return ((MqttClientConnectionConfig) connectionConfig).getChannel();
    }

    /**
     * Lets the library forget a session's messages when the connection ends. It would keep them as
     * long as the broker does, in a timer of the shared event loop: 30 days. As no connection of
     * ours is made twice, its own end is enough. The broker is not told.
     */
    static void forgetSessionAtEnd(Object connectionConfig) {
        ((MqttClientConnectionConfig) connectionConfig).setSessionExpiryInterval(0);
    }

    /** Puts a handler where it sees the PUBACKs that the library writes; false: no such place. */
    static boolean addBehindPubAcks(Channel channel, String name, ChannelHandler handler) {
        return addBefore(MqttIncomingQosHandler.NAME, channel, name, handler);
    }

    /** Puts a handler where it sees the PINGREQs that the library writes; false: no such place. */
    static boolean addBehindPings(Channel channel, String name, ChannelHandler handler) {
        return addBefore(MqttPingHandler.NAME, channel, name, handler);
    }

    private static boolean addBefore(
            String place, Channel channel, String name, ChannelHandler handler) {
        if (channel.pipeline().get(place) == null) {
            return false;
        }
        channel.pipeline().addBefore(place, name, handler);
        return true;
    }

    // ---- packets in the pipeline

    static boolean isPubAck(Object packet) {
        return packet instanceof MqttPubAck;
    }

    static int packetIdOf(Object pubAck) {
        return ((MqttPubAck) pubAck).getPacketIdentifier();
    }

    static boolean isPingRequest(Object packet) {
        return packet instanceof MqttPingReq;
    }

    static Object pingResponse() {
        return MqttPingResp.INSTANCE;
    }

    // ---- received messages

    /** Returns the size of a message's payload, without copying it. */
    static int payloadSizeOf(Object message) {
        ByteBuffer payload = ((MqttPublish) message).getRawPayload();
        return payload == null ? 0 : payload.remaining();
    }

    /** Returns the content type, or null. */
    static MqttUtf8String contentTypeOf(Object message) {
        return ((MqttPublish) message).getRawContentType();
    }

    /** Returns how many bytes the properties had that the publisher set. */
    static int propertyBytesOf(Object message) {
        MqttPublish publish = (MqttPublish) message;
        int bytes = publish.getUserProperties().encodedLength();
        if (publish.getRawMessageExpiryInterval() != MqttPublish.NO_MESSAGE_EXPIRY) {
            bytes += IDENTIFIER + EXPIRY;
        }
        if (publish.getRawPayloadFormatIndicator() != null) {
            bytes += IDENTIFIER + FORMAT_INDICATOR;
        }
        if (publish.getRawContentType() != null) {
            bytes += IDENTIFIER + publish.getRawContentType().encodedLength();
        }
        if (publish.getRawResponseTopic() != null) {
            bytes += IDENTIFIER + publish.getRawResponseTopic().encodedLength();
        }
        if (publish.getRawCorrelationData() != null) {
            bytes += IDENTIFIER + DATA_LENGTH + publish.getRawCorrelationData().remaining();
        }
        return bytes;
    }
}
