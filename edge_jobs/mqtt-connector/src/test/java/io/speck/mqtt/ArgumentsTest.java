package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ArgumentsTest {
    private static final String[] CONTRACT = {
        "--job-name", "A", "--client-id", "speck-0a1b2c3d-A-12345678", "--epoch", "3",
        "--source-broker", "tcp://127.0.0.1:1883", "--source-topic", "a",
        "--sink-broker", "tcp://127.0.0.1:1884", "--sink-topic", "b",
    };

    @Test
    void readsPairsFlagsAndEqualSigns() {
        Parameters given =
                Parameters.of("--a", "1", "--flag", "--b=x=y", "--window", "10s", "--shift", "-3");
        assertEquals(1, given.getInt("a"));
        assertTrue(given.getBoolean("flag", false));
        assertEquals("x=y", given.get("b"));
        assertEquals(Duration.ofSeconds(10), given.getDuration("window"));
        assertEquals(-3, given.getInt("shift"));
        assertEquals(List.of("p", "q"), Parameters.of("--l", "p, q,").getList("l"));
        assertFalse(given.has("c"));
    }

    @Test
    void namesWhatIsMissingOrWrong() {
        Parameters given = Parameters.of("--n", "many", "--window", "soon");
        assertEquals(
                "cannot start the job: argument --c is missing",
                assertThrows(IllegalArgumentException.class, () -> given.get("c")).getMessage());
        assertEquals(
                "cannot use --n \"many\": it must be a whole number",
                assertThrows(IllegalArgumentException.class, () -> given.getInt("n"))
                        .getMessage());
        assertThrows(IllegalArgumentException.class, () -> given.getDuration("window"));
        assertThrows(IllegalArgumentException.class, () -> Parameters.of("stray"));
    }

    @Test
    void durationsKnowTheirUnits() {
        Parameters given = Parameters.of("--a", "250ms", "--b", "5m", "--c", "2h", "--d", "1min");
        assertEquals(Duration.ofMillis(250), given.getDuration("a"));
        assertEquals(Duration.ofMinutes(5), given.getDuration("b"));
        assertEquals(Duration.ofHours(2), given.getDuration("c"));
        assertEquals(Duration.ofMinutes(1), given.getDuration("d"));
    }

    @Test
    void aJobNeedsTheContract() {
        StreamExecutionEnvironment environment = new StreamExecutionEnvironment();
        IllegalArgumentException error =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> SpeckJob.from(new String[] {"--job-name", "A"}, environment));
        assertEquals("cannot start the job: argument --client-id is missing", error.getMessage());
    }

    @Test
    void checkpointsAreOnUnlessTheEngineSaysHow() {
        StreamExecutionEnvironment plain = new StreamExecutionEnvironment();
        SpeckJob.from(CONTRACT, plain);
        assertEquals(1000, plain.getCheckpointConfig().getCheckpointInterval());
        assertEquals(1, plain.getCheckpointConfig().getMaxConcurrentCheckpoints());
        assertTrue(plain.getConfig().isObjectReuseEnabled());
        StreamExecutionEnvironment slow = new StreamExecutionEnvironment();
        slow.enableCheckpointing(7000);
        SpeckJob.from(CONTRACT, slow);
        assertEquals(7000, slow.getCheckpointConfig().getCheckpointInterval());
    }

    @Test
    void deliveryIsOneOfThree() {
        for (Delivery delivery : Delivery.values()) {
            assertEquals(delivery, Delivery.parse(delivery.name().toLowerCase(Locale.ROOT)));
        }
        assertThrows(IllegalArgumentException.class, () -> Delivery.parse("twice"));
    }

    @Test
    void addressesAreNormalised() {
        assertEquals("tcp://host:1883", BrokerAddress.parse("tcp://HOST/").toString());
        assertEquals(9, BrokerAddress.parse("tcp://[::1]:9").port());
        assertThrows(IllegalArgumentException.class, () -> BrokerAddress.parse("http://a:1"));
        assertThrows(IllegalArgumentException.class, () -> BrokerAddress.parse("a:1"));
    }

    @Test
    void producersAreNamedByTheirClientId() {
        assertEquals("0a1b2c3d-my-job", Stamp.producerOf("speck-0a1b2c3d-my-job-12345678"));
    }

    @Test
    void epochsOnlyRise() {
        LinkConfig link =
                new LinkConfig(
                        BrokerAddress.parse("tcp://h:1"), "t", "c", Delivery.AT_LEAST_ONCE, 10);
        MqttSink sink = new MqttSink(link, 2, new SinkSettings(false, 100, Duration.ZERO, 0));
        assertEquals((2L << 32) + 1000, sink.newEpoch(1000, 0, List.of()));
        long later = 5L << 32;
        assertEquals(later + 1, sink.newEpoch(1000, 0, List.of(new MqttSink.State(later, 9, false))));
        assertTrue(sink.newEpoch(1000, 1, List.of()) > sink.newEpoch(1000, 0, List.of()));
    }

    @Test
    void credentialsAreFoundByTheBrokersAddress(@TempDir Path folder) throws Exception {
        Files.writeString(folder.resolve("a"), "address=tcp://one:1883\nuser=u\npassword=p=q\n");
        Files.writeString(folder.resolve("b"), "address=http://one:8081/\nuser=engine\n");
        Credentials found = Credentials.forBroker(BrokerAddress.parse("tcp://ONE"), folder);
        assertEquals("u", found.user());
        assertEquals("p=q", found.password());
        assertFalse(found.toString().contains("p=q"));
        assertEquals(
                Credentials.NONE,
                Credentials.forBroker(BrokerAddress.parse("tcp://two:1883"), folder));
    }
}
