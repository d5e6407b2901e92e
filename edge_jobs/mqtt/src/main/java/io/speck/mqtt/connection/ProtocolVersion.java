package io.speck.mqtt.connection;

import com.hivemq.client.mqtt.exceptions.ConnectionClosedException;
import com.hivemq.client.mqtt.exceptions.MqttDecodeException;
import com.hivemq.client.mqtt.mqtt3.Mqtt3AsyncClient;
import com.hivemq.client.mqtt.mqtt3.Mqtt3ClientBuilder;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5ConnAckException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5DisconnectException;
import com.hivemq.client.mqtt.mqtt5.message.connect.connack.Mqtt5ConnAckReasonCode;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import java.util.UUID;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Chooses the version of the protocol for a broker: MQTT 5, unless it refuses that.
 *
 * <p>A broker older than MQTT 5 may hang up instead of refusing it, or answer by an older protocol.
 * So does one that is being restarted. It is old if it accepts MQTT 3.1.1 between such ends, and
 * has never accepted MQTT 5. A proxy that flaps may look the same, and a broker may be replaced by a
 * newer one: each connection of MQTT 3.1.1 is followed by an attempt with MQTT 5. A job that has promised its records exactly once goes on trying: with
 * MQTT 3.1.1 it cannot keep that, and its user has not been asked.
 */
final class ProtocolVersion {
    private static final Logger LOG = LoggerFactory.getLogger(ProtocolVersion.class);
    private static final int SUSPICIOUS = 2;

    private final LinkConfig link;
    private final EventLoops loops;
    private boolean old;
    private boolean spoke5;
    private boolean accepts311;
    private int hangUps;

    ProtocolVersion(LinkConfig link, EventLoops loops) {
        this.link = link;
        this.loops = loops;
    }

    /** Whether to connect with MQTT 3.1.1. */
    synchronized boolean isOld() {
        return old;
    }

    /** A connection is ready. */
    synchronized void noteReady() {
        spoke5 |= !old;
    }

    /** A connection has ended; returns whether it ended so that the broker is now taken for old. */
    synchronized boolean turnsOldAfter(MqttConnection ended, Throwable cause) {
        if (old) {
            old = false; // one that is old says so again at once
            return false;
        }
        boolean hungUp = !ended.wasAccepted() && hangsUp(cause);
        hangUps = hungUp ? hangUps + 1 : 0;
        if (refuses(cause)) {
            old = true;
        } else if (hungUp && accepts311 && link.delivery() != Delivery.EXACTLY_ONCE) {
            old = true;
        }
        accepts311 &= hungUp;
        if (old) {
            LOG.warn(
                    "{} refuses MQTT 5; going on with MQTT 3.1.1: repeats and holes are not seen",
                    link);
        }
        return old;
    }

    /** Returns what is to be said of a broker that would accept MQTT 3.1.1 only; null: nothing. */
    synchronized String problem() {
        return accepts311 && link.delivery() == Delivery.EXACTLY_ONCE
                ? "it hangs up on MQTT 5 and accepts MQTT 3.1.1, which has no exactly_once"
                : null;
    }

    /**
     * Runs {@code next} once it is known whether a broker that hangs up accepts MQTT 3.1.1. It is
     * run without a lock held: the supervisor's is taken before ours.
     */
    void askBefore(Runnable next) {
        if (!isSuspicious()) {
            next.run();
            return;
        }
        Mqtt3AsyncClient visitor = makeVisitor();
        visitor.connectWith()
                .cleanSession(true)
                .keepAlive(ClientSettings.KEEP_ALIVE_S)
                .send()
                .whenComplete(
                        (connAck, refusal) -> {
                            if (refusal == null) {
                                visitor.disconnect();
                            }
                            synchronized (this) {
                                accepts311 = refusal == null;
                            }
                            next.run();
                        });
    }

    private synchronized boolean isSuspicious() {
        return !(old || spoke5 || accepts311) && hangUps >= SUSPICIOUS;
    }

    /** Under an id of its own: the reader's session, if there is one, stays as it is. */
    private Mqtt3AsyncClient makeVisitor() {
        String id = "speck-visit-" + UUID.randomUUID().toString().replace("-", "").substring(0, 16);
        Mqtt3ClientBuilder builder =
                ClientSettings.builder(link, loops).identifier(id).useMqttVersion3();
        return Mqtt3Connection.authenticate(builder, link).buildAsync();
    }

    private static boolean refuses(Throwable cause) {
        return cause instanceof Mqtt5ConnAckException refusal
                && refusal.getMqttMessage().getReasonCode()
                        == Mqtt5ConnAckReasonCode.UNSUPPORTED_PROTOCOL_VERSION;
    }

    /** Not a network that is slow or down: that says nothing about the broker's age. */
    private static boolean hangsUp(Throwable cause) {
        return cause instanceof ConnectionClosedException
                || cause instanceof MqttDecodeException
                || cause instanceof Mqtt5DisconnectException
                || cause.getCause() instanceof MqttDecodeException;
    }
}
