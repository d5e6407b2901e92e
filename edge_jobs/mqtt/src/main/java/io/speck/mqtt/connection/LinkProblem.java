package io.speck.mqtt.connection;

import com.hivemq.client.mqtt.exceptions.ConnectionFailedException;
import com.hivemq.client.mqtt.mqtt3.exceptions.Mqtt3ConnAckException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5ConnAckException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5DisconnectException;
import com.hivemq.client.mqtt.mqtt5.message.disconnect.Mqtt5DisconnectReasonCode;
import io.speck.link.transport.Guilt;
import java.util.EnumSet;
import java.util.Set;

/** Says in words why a connection ended or was not made, and what that end proves. */
final class LinkProblem {
    private static final Set<Mqtt5DisconnectReasonCode> OF_A_MESSAGE =
            EnumSet.of(
                    Mqtt5DisconnectReasonCode.MALFORMED_PACKET,
                    Mqtt5DisconnectReasonCode.PROTOCOL_ERROR,
                    Mqtt5DisconnectReasonCode.TOPIC_NAME_INVALID,
                    Mqtt5DisconnectReasonCode.PACKET_TOO_LARGE,
                    Mqtt5DisconnectReasonCode.PAYLOAD_FORMAT_INVALID);

    private LinkProblem() {}

    static String describe(Throwable cause) {
        if (cause instanceof Mqtt5ConnAckException refusal) {
            return "the broker refuses the login: " + refusal.getMqttMessage().getReasonCode();
        }
        if (cause instanceof Mqtt3ConnAckException refusal) {
            return "the broker refuses the login: " + refusal.getMqttMessage().getReturnCode();
        }
        if (cause instanceof Mqtt5DisconnectException end) {
            return "the connection was ended: " + end.getMqttMessage().getReasonCode();
        }
        Throwable root = cause;
        if (cause instanceof ConnectionFailedException && cause.getCause() != null) {
            root = cause.getCause();
        }
        String message = root.getMessage();
        return message == null ? root.getClass().getSimpleName() : message;
    }

    static Guilt guiltOf(Throwable cause) {
        if (cause instanceof Mqtt5DisconnectException end) {
            Mqtt5DisconnectReasonCode code = end.getMqttMessage().getReasonCode();
            return OF_A_MESSAGE.contains(code) ? Guilt.CERTAIN : Guilt.NONE;
        }
        String message = String.valueOf(cause.getMessage());
        return message.contains("PINGRESP") ? Guilt.NONE : Guilt.POSSIBLE;
    }
}
