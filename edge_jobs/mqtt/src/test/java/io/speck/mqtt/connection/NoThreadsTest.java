package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** A connector in a fat jar leaves no thread behind, which would keep its class loader. */
@Tag("long")
class NoThreadsTest {
    /** In a JVM of its own: the other tests' clients bring threads of RxJava. */
    @Test
    void noThreadIsLeftOfAConnection() throws Exception {
        Process process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "-Xmx64m",
                                "-cp",
                                System.getProperty("java.class.path"),
                                Alone.class.getName())
                        .redirectError(ProcessBuilder.Redirect.DISCARD)
                        .start();
        String left =
                new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).trim();
        process.waitFor(30, TimeUnit.SECONDS);
        assertEquals("left: []", left.substring(left.lastIndexOf("left:")));
    }

    /** Connects to nobody, ends, and prints which threads of libraries are left. */
    static final class Alone {
        private Alone() {}

        public static void main(String[] args) throws Exception {
            LinkConfig link =
                    new LinkConfig(
                            Transports.parse("tcp://127.0.0.1:1"),
                            "t",
                            "c",
                            Delivery.AT_LEAST_ONCE,
                            10);
            EventLoops loops = EventLoops.lease();
            MqttConnection connection = new Mqtt5Connection(link, loops, new ConnectionListener() {});
            connection.open(true);
            connection.end().get(30, TimeUnit.SECONDS);
            loops.close();
            loops.group().terminationFuture().sync();
            // the future completes in a thread of the group, a moment before that ends
            for (Thread thread : Thread.getAllStackTraces().keySet()) {
                if (isOurs(thread.getName())) {
                    thread.join(TimeUnit.SECONDS.toMillis(10));
                }
            }
            System.out.println(
                    "left: "
                            + Thread.getAllStackTraces().keySet().stream()
                                    .map(Thread::getName)
                                    .filter(Alone::isOurs)
                                    .collect(Collectors.toList()));
        }

        private static boolean isOurs(String name) {
            return name.startsWith("Rx") || name.startsWith("speck") || name.contains("netty");
        }
    }
}
