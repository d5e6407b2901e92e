package io.speck.mqtt.connection;

import io.speck.link.protocol.SentNumber;
import io.speck.link.transport.BrokerAddress;
import io.speck.link.transport.LinkClient;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.ReaderConnection;
import io.speck.link.transport.ReaderListener;
import io.speck.link.transport.ReadingRange;
import io.speck.link.transport.Transport;
import io.speck.link.transport.WriterConnection;
import io.speck.link.transport.WriterListener;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Links over MQTT 5, and as far as that goes over MQTT 3.1.1. */
public final class MqttTransport implements Transport {
    private static final Logger LOG = LoggerFactory.getLogger(MqttTransport.class);

    @Override
    public Set<String> schemes() {
        return MqttAddress.SCHEMES;
    }

    @Override
    public String example() {
        return MqttAddress.EXAMPLE;
    }

    @Override
    public BrokerAddress parse(String address) {
        return MqttAddress.parse(address).toBrokerAddress();
    }

    @Override
    public LinkClient<? extends ReaderConnection> openReader(
            LinkConfig link, ReadingRange range, ReaderListener listener) {
        return Supervisor.forReader(link, new ReaderEvents(listener));
    }

    @Override
    public LinkClient<? extends WriterConnection> openWriter(
            LinkConfig link, WriterListener listener) {
        return Supervisor.forWriter(link, new WriterEvents(link, listener));
    }

    @Override
    public boolean keepsLogs() {
        return false;
    }

    @Override
    public String sizeSettings() {
        return "its max_packet_size and message_size_limit";
    }

    private record ReaderEvents(ReaderListener listener) implements ConnectionListener {
        @Override
        public void onAdmitted(MqttConnection connection, boolean sessionPresent) {
            listener.onAdmitted(connection, sessionPresent);
        }

        @Override
        public void onReady(MqttConnection connection, boolean sessionPresent, int sendMaximum) {
            listener.onReady(connection, sessionPresent);
        }

        @Override
        public void onMessages(MqttConnection connection) {
            listener.onMessages(connection);
        }
    }

    private record WriterEvents(LinkConfig link, WriterListener listener)
            implements ConnectionListener {
        @Override
        public void onReady(MqttConnection connection, boolean sessionPresent, int sendMaximum) {
            listener.onReady(connection, sendMaximum);
        }

        @Override
        public void onOutcomes(MqttConnection connection) {
            listener.onOutcomes(connection);
        }

        @Override
        public void onEnd(MqttConnection connection, Throwable cause) {
            listener.onEnd(connection, cause);
        }

        @Override
        public void onAnnouncement(MqttConnection connection, String topic, byte[] payload) {
            if (topic.startsWith(Topics.SESSIONS)) {
                String clientId = topic.substring(topic.lastIndexOf('/') + 1);
                listener.onSession(connection, clientId, payload.length > 0);
            } else if (topic.startsWith(Topics.READERS)) {
                hearOfReaders(connection, topic, new String(payload, StandardCharsets.UTF_8));
            } else {
                SentNumber number = SentNumber.parse(payload, link.topic());
                if (number != null) {
                    listener.onConfirmed(connection, number);
                }
            }
        }

        private void hearOfReaders(MqttConnection connection, String topic, String text) {
            switch (text) {
                case Topics.SOME -> listener.onReaders(connection, true);
                case Topics.NONE -> listener.onReaders(connection, false);
                case Topics.AGAIN -> listener.onReaderLost(connection);
                case Topics.COMPLETE -> listener.onSessionsComplete(connection);
                default -> LOG.warn("cannot read the announcement on {}: {}", topic, text);
            }
        }
    }
}
