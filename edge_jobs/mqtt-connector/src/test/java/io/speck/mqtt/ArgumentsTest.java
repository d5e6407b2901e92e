package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.Set;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExecutionOptions;
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
    void recordsDoNotWaitBetweenTasksUnlessTheEngineIsToldSo() {
        assertEquals(5, SpeckJob.from(CONTRACT).environment().getBufferTimeout());
        Configuration told = new Configuration();
        told.set(ExecutionOptions.BUFFER_TIMEOUT, Duration.ofMillis(70));
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(told);
        assertEquals(70, SpeckJob.from(CONTRACT, environment).environment().getBufferTimeout());
        told = new Configuration();
        told.set(ExecutionOptions.BUFFER_TIMEOUT_ENABLED, false); // full buffers only
        environment = StreamExecutionEnvironment.getExecutionEnvironment(told);
        assertEquals(-1, SpeckJob.from(CONTRACT, environment).environment().getBufferTimeout());
    }

    @Test
    void batchingIsOffUntilItIsAskedFor() {
        assertEquals(Batching.OFF, Batching.of(Parameters.of(CONTRACT)));
        assertFalse(Batching.OFF.isOn());
        String[] asked = {"--batch-records", "10000", "--linger-ms", "60000", "--compression", "zstd"};
        assertEquals(new Batching(10_000, 60_000, true), Batching.of(Parameters.of(asked)));
        assertTrue(Batching.of(Parameters.of("--compression", "zstd")).isOn());
    }

    @Test
    void batchingHasItsBounds() {
        assertEquals(
                "cannot use --batch-records 0: it must be 1 to 10000", refusal("batch-records", "0"));
        assertEquals(
                "cannot use --batch-records 10001: it must be 1 to 10000",
                refusal("batch-records", "10001"));
        assertEquals("cannot use --linger-ms -1: it must be 0 to 60000", refusal("linger-ms", "-1"));
        assertEquals(
                "cannot use --compression \"gzip\": it must be none or zstd",
                refusal("compression", "gzip"));
    }

    @Test
    void whatWasTakenMustBeReadable() {
        assertEquals(
                "cannot use --taken: \"p/2\" must be <producer>/<epoch>/<upto>, after which"
                        + " /<first>-<last>,... may come",
                refusal("taken", "p/1/5;p/2"));
    }

    private static String refusal(String name, String value) {
        String[] args = Arrays.copyOf(CONTRACT, CONTRACT.length + 2);
        args[CONTRACT.length] = "--" + name;
        args[CONTRACT.length + 1] = value;
        return assertThrows(IllegalArgumentException.class, () -> SpeckJob.from(args)).getMessage();
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
        assertEquals("ssl://host:8883", BrokerAddress.parse("mqtts://Host").toString());
        assertEquals("ssl://host:1883", BrokerAddress.parse("ssl://host:1883/").toString());
        assertTrue(BrokerAddress.parse("ssl://host").encrypted());
        assertFalse(BrokerAddress.parse("mqtt://host").encrypted());
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
        MqttSink sink = new MqttSink(link, 2, settings());
        Random random = new Random(7);
        long epoch = sink.newEpoch(random, List.of());
        assertEquals(2, epoch >> 32);
        for (int i = 0; i < 50; i++) {
            long next = sink.newEpoch(random, List.of(new MqttSink.State(epoch, 9, false, null)));
            assertTrue(next > epoch);
            assertEquals(2, next >> 32);
            epoch = next;
        }
        long later = 5L << 32;
        assertTrue(sink.newEpoch(random, List.of(new MqttSink.State(later, 9, false, null))) > later);
    }

    /** Two openings from the same state must not number different records alike. */
    @Test
    void epochsAreNeverUsedTwice() {
        LinkConfig link =
                new LinkConfig(
                        BrokerAddress.parse("tcp://h:1"), "t", "c", Delivery.AT_LEAST_ONCE, 10);
        MqttSink sink = new MqttSink(link, 2, settings());
        List<MqttSink.State> restored =
                List.of(new MqttSink.State((2L << 32) + (1L << 31), 9, false, null));
        Random random = new Random(7);
        assertEquals(100, random(sink, random, List.of()).size());
        assertEquals(100, random(sink, random, restored).size());
    }

    private static SinkSettings settings() {
        return new SinkSettings(false, 100, Duration.ZERO, 0, 0, Batching.OFF);
    }

    private static Set<Long> random(MqttSink sink, Random random, List<MqttSink.State> restored) {
        Set<Long> epochs = new HashSet<>();
        for (int i = 0; i < 100; i++) {
            epochs.add(sink.newEpoch(random, restored));
        }
        return epochs;
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
        Files.writeString(folder.resolve("c"), "address=mqtts://three\nuser=safe\n");
        assertEquals(
                "safe",
                Credentials.forBroker(BrokerAddress.parse("ssl://three:8883"), folder).user());
        assertEquals(
                Credentials.NONE,
                Credentials.forBroker(BrokerAddress.parse("tcp://three:8883"), folder),
                "a password for an encrypted connection goes over no other");
    }
}
