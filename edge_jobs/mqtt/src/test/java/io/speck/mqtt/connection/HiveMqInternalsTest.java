package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.hivemq.client.internal.mqtt.datatypes.MqttUserPropertiesImpl;
import com.hivemq.client.internal.mqtt.message.ping.MqttPingReq;
import com.hivemq.client.internal.mqtt.message.ping.MqttPingResp;
import com.hivemq.client.internal.mqtt.message.publish.puback.MqttPubAck;
import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PayloadFormatIndicator;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import io.netty.channel.Channel;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.speck.mqtt.testing.Mosquitto;
import java.net.JarURLConnection;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class HiveMqInternalsTest {
    /**
     * The version for which {@link HiveMqInternals} was written. Before this is set to another one:
     * see whether the public interface can do now what the internal classes are used for, and run
     * the long tests as well.
     */
    private static final String WRITTEN_FOR = "1.3.17";

    @Test
    void theVersionIsTheOneItWasWrittenFor() throws Exception {
        assertEquals(WRITTEN_FOR, System.getProperty("hivemq.version"), "in the pom");
        String name = MqttClient.class.getSimpleName() + ".class";
        JarURLConnection jar =
                (JarURLConnection) MqttClient.class.getResource(name).openConnection();
        assertEquals(
                WRITTEN_FOR,
                jar.getManifest().getMainAttributes().getValue("Bundle-Version"),
                "on the class path");
    }

    @Test
    void recognisesPackets() {
        MqttPubAck pubAck =
                new MqttPubAck(
                        77,
                        MqttPubAck.DEFAULT_REASON_CODE,
                        null,
                        MqttUserPropertiesImpl.NO_USER_PROPERTIES);
        assertTrue(HiveMqInternals.isPubAck(pubAck));
        assertEquals(77, HiveMqInternals.packetIdOf(pubAck));
        assertTrue(HiveMqInternals.isPingRequest(MqttPingReq.INSTANCE));
        assertFalse(HiveMqInternals.isPingRequest(pubAck));
        assertFalse(HiveMqInternals.isPubAck(MqttPingReq.INSTANCE));
        assertEquals(MqttPingResp.INSTANCE, HiveMqInternals.pingResponse());
    }

    @Test
    void readsMessagesWithoutCopyingThem() {
        Mqtt5Publish bare = Mqtt5Publish.builder().topic("t").build();
        assertEquals(0, HiveMqInternals.payloadSizeOf(bare));
        assertNull(HiveMqInternals.contentTypeOf(bare));
        assertEquals(0, HiveMqInternals.propertyBytesOf(bare));

        Mqtt5Publish full =
                Mqtt5Publish.builder()
                        .topic("t")
                        .payload(new byte[5])
                        .contentType("ab")
                        .responseTopic("abc")
                        .correlationData(new byte[4])
                        .messageExpiryInterval(9)
                        .payloadFormatIndicator(Mqtt5PayloadFormatIndicator.UTF_8)
                        .userProperties()
                        .add("k", "v")
                        .applyUserProperties()
                        .build();
        assertEquals(5, HiveMqInternals.payloadSizeOf(full));
        assertEquals("ab", HiveMqInternals.contentTypeOf(full).toString());
        int identifiers = 6;
        int lengths = 2 + 2 + 2 + 2 + 2; // content type, response topic, data, name, value
        int values = 2 + 3 + 4 + 4 + 1 + 1 + 1;
        assertEquals(identifiers + lengths + values, HiveMqInternals.propertyBytesOf(full));
    }

    /** Without these places the gates would silently not be there. */
    @Test
    void theGatesFindTheirPlaceInAConnection(@TempDir Path folder) throws Exception {
        try (Mosquitto broker = Mosquitto.started(folder)) {
            Mqtt5BlockingClient client =
                    MqttClient.builder()
                            .useMqttVersion5()
                            .serverHost("127.0.0.1")
                            .serverPort(broker.port())
                            .buildBlocking();
            client.connect();
            try {
                Object config = client.getConfig().getConnectionConfig().orElseThrow();
                HiveMqInternals.forgetSessionAtEnd(config);
                Channel channel = HiveMqInternals.channelOf(config);
                List<Boolean> added =
                        channel.eventLoop()
                                .submit(
                                        () ->
                                                List.of(
                                                        HiveMqInternals.addBehindPubAcks(
                                                                channel, "acks", handler()),
                                                        HiveMqInternals.addBehindPings(
                                                                channel, "pings", handler())))
                                .get();
                assertEquals(List.of(true, true), added);
                client.publishWith()
                        .topic("t")
                        .payload("still works".getBytes(StandardCharsets.UTF_8))
                        .send();
            } finally {
                client.disconnect();
            }
        }
    }

    private static ChannelOutboundHandlerAdapter handler() {
        return new ChannelOutboundHandlerAdapter();
    }
}
