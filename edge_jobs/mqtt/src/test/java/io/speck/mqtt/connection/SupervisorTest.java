package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.link.testing.Wait;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.mqtt.testing.Mosquitto;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What a connection that is made and lost again tells. */
class SupervisorTest {
    private static final String SAME_ID = "another client may have the id reader";

    @TempDir Path folder;

    @Test
    void aClientWithTheSameIdIsToldAlsoWhileConnected() throws Exception {
        try (Mosquitto broker = Mosquitto.in(folder).start();
                Supervisor own = connect(broker)) {
            Wait.until("it connects", own::isConnected);
            assertEquals("", own.problem());
            try (Supervisor other = connect(broker)) {
                Wait.until(
                        "the other one is told",
                        () -> own.isConnected() && own.problem().contains(SAME_ID),
                        own::problem);
                Wait.until("both tell", () -> other.problem().contains(SAME_ID), other::problem);
            }
            Wait.until("it is over", () -> own.isConnected() && own.problem().isEmpty());
        }
    }

    private static Supervisor connect(Mosquitto broker) {
        LinkConfig link = ProtocolVersionTest.linkTo(broker.address(), Delivery.AT_LEAST_ONCE);
        Supervisor supervisor = Supervisor.forReader(link, new Silent());
        supervisor.start();
        return supervisor;
    }

    /** Does nothing with what comes. */
    private static final class Silent implements ConnectionListener {}
}
