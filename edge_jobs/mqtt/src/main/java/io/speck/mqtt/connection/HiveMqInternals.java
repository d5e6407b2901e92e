package io.speck.mqtt.connection;

import com.hivemq.client.internal.mqtt.MqttClientConnectionConfig;
import com.hivemq.client.internal.mqtt.codec.decoder.MqttDecoder;
import com.hivemq.client.internal.mqtt.codec.decoder.MqttMessageDecoder;
import com.hivemq.client.internal.mqtt.codec.decoder.MqttMessageDecoders;
import com.hivemq.client.internal.mqtt.datatypes.MqttUserPropertiesImpl;
import com.hivemq.client.internal.mqtt.datatypes.MqttUtf8StringImpl;
import com.hivemq.client.internal.mqtt.handler.ping.MqttPingHandler;
import com.hivemq.client.internal.mqtt.handler.publish.incoming.MqttIncomingQosHandler;
import com.hivemq.client.internal.mqtt.message.ping.MqttPingReq;
import com.hivemq.client.internal.mqtt.message.ping.MqttPingResp;
import com.hivemq.client.internal.mqtt.message.publish.MqttPublish;
import com.hivemq.client.internal.mqtt.message.publish.puback.MqttPubAck;
import com.hivemq.client.mqtt.datatypes.MqttUtf8String;
import com.hivemq.client.mqtt.mqtt5.message.Mqtt5MessageType;
import com.hivemq.client.mqtt.mqtt5.message.publish.puback.Mqtt5PubAck;
import com.hivemq.client.mqtt.mqtt5.message.publish.puback.Mqtt5PubAckReasonCode;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import java.lang.reflect.Field;
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

    private static final int PACKET_ID = 2;
    private static final int FIRST_ERROR = 0x80;
    private static final String UNKNOWN_CODE = "\u200bspeck: reason code 0x"; // no broker's words

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

    // ---- answers of brokers that the library cannot read

    /**
     * Lets the library read PUBACKs with reason codes that MQTT 5 does not have for them. It takes
     * such a packet for malformed and ends the connection, and a broker that always answers one
     * message in this way would end all: Mosquitto has 0x95, Packet too large, for a message over
     * its {@code message_size_limit}. The code is then in the reason string, see {@link
     * #unknownCodeOf}.
     *
     * @return whether it was possible
     */
    static boolean readUnknownPubAckCodes(Channel channel) {
        try {
            Field ofDecoder = MqttDecoder.class.getDeclaredField("decoders");
            Field byType = MqttMessageDecoders.class.getDeclaredField("decoders");
            ofDecoder.setAccessible(true);
            byType.setAccessible(true);
            Object all = ofDecoder.get(channel.pipeline().get(MqttDecoder.NAME));
            MqttMessageDecoder[] decoders = (MqttMessageDecoder[]) byType.get(all);
            int pubAck = Mqtt5MessageType.PUBACK.getCode();
            MqttMessageDecoder known = decoders[pubAck];
            decoders[pubAck] =
                    (flags, in, context) -> {
                        MqttPubAck unknown = readUnknown(in);
                        return unknown != null ? unknown : known.decode(flags, in, context);
                    };
            return true;
        } catch (ReflectiveOperationException | RuntimeException e) {
            return false;
        }
    }

    private static MqttPubAck readUnknown(ByteBuf in) {
        if (in.readableBytes() <= PACKET_ID) {
            return null;
        }
        int code = in.getUnsignedByte(in.readerIndex() + PACKET_ID);
        if (code < FIRST_ERROR || Mqtt5PubAckReasonCode.fromCode(code) != null) {
            return null;
        }
        int packetId = in.readUnsignedShort();
        in.skipBytes(in.readableBytes());
        return new MqttPubAck(
                packetId,
                Mqtt5PubAckReasonCode.UNSPECIFIED_ERROR,
                MqttUtf8StringImpl.of(UNKNOWN_CODE + Integer.toHexString(code)),
                MqttUserPropertiesImpl.NO_USER_PROPERTIES);
    }

    /** Returns the code of a PUBACK that the library does not know; -1: it knows it. */
    static int unknownCodeOf(Mqtt5PubAck pubAck) {
        String reason = pubAck.getReasonString().map(Object::toString).orElse("");
        return reason.startsWith(UNKNOWN_CODE)
                ? Integer.parseInt(reason.substring(UNKNOWN_CODE.length()), 16)
                : -1;
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
