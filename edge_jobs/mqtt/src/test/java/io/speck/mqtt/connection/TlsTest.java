package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.testing.Wait;
import io.speck.link.transport.Credentials;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.TestCertificate;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Connections to a broker that asks for client certificates, and whose own is for 127.0.0.1. */
class TlsTest {
    @TempDir Path folder;

    private final List<String> refusals = new CopyOnWriteArrayList<>();
    private TestCertificate certificate;
    private Path credentials;
    private Mosquitto broker;
    private int port;

    @BeforeEach
    void begin() throws Exception {
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        certificate = TestCertificate.in(folder);
        broker =
                Mosquitto.in(folder)
                        .with(
                                "listener " + port,
                                "cafile " + certificate.file(),
                                "certfile " + certificate.file(),
                                "keyfile " + certificate.key(),
                                "require_certificate true")
                        .start();
        credentials = Files.createDirectory(folder.resolve("credentials"));
        System.setProperty(Credentials.PROPERTY, credentials.toString());
    }

    @AfterEach
    void end() throws Exception {
        System.clearProperty(Credentials.PROPERTY);
        broker.close();
    }

    @Test
    void aClientWithoutCertificateIsRefusedUntilItsCredentialsNameOne() throws Exception {
        String address = "ssl://127.0.0.1:" + port;
        write("address=tcp://other:1 " + address, "ca=" + certificate.file());
        try (Supervisor supervisor = connect(address)) {
            Wait.until("the broker refuses", () -> !refusals.isEmpty());
            assertTrue(!supervisor.isConnected());
            write(
                    "address=tcp://other:1 " + address,
                    "ca=" + certificate.file(),
                    "cert=" + certificate.file(),
                    "key=" + certificate.key());
            Wait.until("it connects without a restart", supervisor::isConnected);
        }
    }

    @Test
    void aBrokerWithACertificateForAnotherHostIsRefused() throws Exception {
        String address = "ssl://localhost:" + port;
        write(
                "address=" + address,
                "ca=" + certificate.file(),
                "cert=" + certificate.file(),
                "key=" + certificate.key());
        try (Supervisor supervisor = connect(address)) {
            Wait.until("the client refuses", () -> !refusals.isEmpty());
            assertTrue(!supervisor.isConnected());
            assertTrue(refusals.get(0).contains("localhost"), refusals.get(0));
        }
    }

    private void write(String... lines) throws Exception {
        Path fresh = Files.writeString(folder.resolve("fresh"), String.join("\n", lines) + "\n");
        Files.move(fresh, credentials.resolve("site"), StandardCopyOption.ATOMIC_MOVE);
    }

    private Supervisor connect(String address) {
        LinkConfig link =
                new LinkConfig(
                        Transports.parse(address), "t", "reader", Delivery.AT_LEAST_ONCE, 10);
        Supervisor supervisor = Supervisor.forReader(link, new Refusals());
        supervisor.start();
        return supervisor;
    }

    private final class Refusals implements ConnectionListener {
        @Override
        public void onReady(MqttConnection connection, boolean sessionPresent, int sendMaximum) {}

        @Override
        public void onEnd(MqttConnection connection, Throwable cause) {
            StringWriter trace = new StringWriter();
            cause.printStackTrace(new PrintWriter(trace));
            refusals.add(trace.toString());
        }
    }
}
