package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.hivemq.client.internal.mqtt.datatypes.MqttUserPropertiesImpl;
import com.hivemq.client.internal.mqtt.message.publish.puback.MqttPubAck;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.channel.embedded.EmbeddedChannel;
import org.junit.jupiter.api.Test;

class AckGateTest {
    private final AckGate gate = new AckGate();
    private final EmbeddedChannel channel = new EmbeddedChannel(gate);

    @Test
    void holdsUntilReleased() {
        acknowledge(1, 2);

        assertNull(channel.readOutbound());
    }

    @Test
    void releasesInOrderWithOneWrite() {
        acknowledge(7, 0xffff, 9);

        gate.releaseUpTo(2);

        assertEquals("40020007" + "4002ffff", written());
        assertNull(channel.readOutbound());
    }

    @Test
    void countsFromTheBeginning() {
        acknowledge(1, 2, 3);
        gate.releaseUpTo(2);
        written();
        acknowledge(4);

        gate.releaseUpTo(2);
        assertNull(channel.readOutbound());
        gate.releaseUpTo(4);

        assertEquals("40020003" + "40020004", written());
    }

    @Test
    void releasesNoMoreThanThereAre() {
        acknowledge(1);

        gate.releaseUpTo(10);
        acknowledge(2);
        gate.releaseUpTo(2);

        assertEquals("40020001", written());
        assertEquals("40020002", written());
    }

    @Test
    void letsAllElsePass() {
        channel.writeOutbound("a PUBLISH");

        assertEquals("a PUBLISH", channel.readOutbound());
    }

    private void acknowledge(int... packetIds) {
        for (int id : packetIds) {
            channel.writeOneOutbound(
                    new MqttPubAck(
                            id,
                            MqttPubAck.DEFAULT_REASON_CODE,
                            null,
                            MqttUserPropertiesImpl.NO_USER_PROPERTIES));
            channel.flushOutbound();
        }
    }

    private String written() {
        ByteBuf bytes = channel.readOutbound();
        String hex = ByteBufUtil.hexDump(bytes);
        bytes.release();
        return hex;
    }
}
