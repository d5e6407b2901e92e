package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.testing.Wait;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import io.speck.mqtt.testing.CuttingProxy;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.Mqtt311Proxy;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Brokers that hang up: those that are older than MQTT 5, and those that are not. */
class ProtocolVersionTest {
    private static final String CONNECT_5 = "MQTT\5";

    @TempDir Path folder;

    private final AtomicInteger ends = new AtomicInteger();
    private final AtomicInteger ready = new AtomicInteger();
    private final AtomicBoolean numbered = new AtomicBoolean();
    private Mosquitto broker;

    @BeforeEach
    void begin() throws Exception {
        broker = Mosquitto.in(folder).start();
    }

    @AfterEach
    void end() throws Exception {
        broker.close();
    }

    @ParameterizedTest
    @EnumSource
    void anOldBrokerIsSpokenToInMqtt311(Mqtt311Proxy.Refusal refusal) throws Exception {
        try (Mqtt311Proxy old = new Mqtt311Proxy(broker, refusal);
                Supervisor supervisor = connect(old.address(), Delivery.AT_LEAST_ONCE)) {
            Wait.until("it connects", supervisor::isConnected);
            assertFalse(numbered.get());
        }
    }

    @Test
    void whatIsPromisedExactlyOnceDoesNotGoByMqtt311() throws Exception {
        try (Mqtt311Proxy old = new Mqtt311Proxy(broker, Mqtt311Proxy.Refusal.SILENT);
                Supervisor supervisor = connect(old.address(), Delivery.EXACTLY_ONCE)) {
            Wait.until(
                    "the reason is said",
                    () -> supervisor.problem().contains("it hangs up on MQTT 5 and accepts"));
            assertFalse(supervisor.isConnected());
        }
    }

    @Test
    void aBrokerThatHasSpokenMqtt5StaysWithIt() throws Exception {
        try (CuttingProxy proxy = new CuttingProxy(broker);
                Supervisor supervisor = connect(proxy.address(), Delivery.AT_LEAST_ONCE)) {
            Wait.until("it connects", supervisor::isConnected);
            proxy.cutWhenever(CONNECT_5);
            proxy.cut();
            Wait.until("it tries again and again", () -> ends.get() > 5);
            assertFalse(supervisor.isConnected());
            assertTrue(numbered.get());
        }
    }

    @Test
    @Tag("long")
    void aProxyThatHungUpForAWhileDoesNotKeepItFromMqtt5() throws Exception {
        try (CuttingProxy proxy = new CuttingProxy(broker)) {
            proxy.cutWhenever(CONNECT_5);
            try (Supervisor supervisor = connect(proxy.address(), Delivery.AT_LEAST_ONCE)) {
                Wait.until("it connects", supervisor::isConnected);
                assertFalse(numbered.get());
                proxy.cut();
                Wait.until("it connects again, as before", () -> ready.get() > 1);
                assertFalse(numbered.get());
                proxy.cutNothing();
                proxy.cut();
                Wait.until("it speaks MQTT 5", numbered::get);
                int before = ready.get();
                proxy.cutWhenever(CONNECT_5);
                proxy.cut();
                int ended = ends.get();
                Wait.until("it tries again and again", () -> ends.get() > ended + 5);
                assertEquals(before, ready.get());
            }
        }
    }

    @ParameterizedTest
    @Tag("long")
    @EnumSource
    void anOldBrokerThatIsReplacedIsSpokenToInMqtt5(Mqtt311Proxy.Refusal refusal) throws Exception {
        try (Mqtt311Proxy old = new Mqtt311Proxy(broker, refusal);
                Supervisor supervisor = connect(old.address(), Delivery.AT_LEAST_ONCE)) {
            Wait.until("it connects", supervisor::isConnected);
            assertFalse(numbered.get());
            old.replace();
            Wait.until("it speaks MQTT 5", numbered::get);
        }
    }

    @Test
    void whatFollowsHoldsNoLock() {
        LinkConfig link = linkTo(broker.address(), Delivery.AT_LEAST_ONCE);
        AtomicBoolean held = new AtomicBoolean(true);
        EventLoops loops = EventLoops.lease();
        try {
            ProtocolVersion version = new ProtocolVersion(link, loops);
            version.askBefore(() -> held.set(Thread.holdsLock(version)));
            assertFalse(held.get());
        } finally {
            loops.close();
        }
    }

    static LinkConfig linkTo(String address, Delivery delivery) {
        return new LinkConfig(Transports.parse(address), "t", "reader", delivery, 10);
    }

    private Supervisor connect(String address, Delivery delivery) {
        Supervisor supervisor = Supervisor.forReader(linkTo(address, delivery), new Listener());
        supervisor.start();
        return supervisor;
    }

    private final class Listener implements ConnectionListener {
        @Override
        public void onReady(MqttConnection connection, boolean sessionPresent, int sendMaximum) {
            numbered.set(connection.isNumbered());
            ready.incrementAndGet();
        }

        @Override
        public void onEnd(MqttConnection connection, Throwable cause) {
            ends.incrementAndGet();
        }
    }
}
