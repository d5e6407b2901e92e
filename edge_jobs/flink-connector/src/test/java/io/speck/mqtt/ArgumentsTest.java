package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.JobContract;
import io.speck.link.protocol.Batching;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.junit.jupiter.api.Test;

class ArgumentsTest {
    private static final String[] CONTRACT = {
        "--job-name", "A", "--client-id", "speck-0a1b2c3d-A-12345678", "--epoch", "3",
        "--source-broker", "tcp://127.0.0.1:1883", "--source-topic", "a",
        "--sink-broker", "tcp://127.0.0.1:1884", "--sink-topic", "b",
    };

    /** A job logs arguments that it does not know, and must not log those. */
    @Test
    void allArgumentsThatAreReadOrDescribedAreListed() throws IOException {
        Path own = Path.of("src", "main", "java", "io", "speck");
        Path core = Path.of("..", "link-core").resolve(own);
        Set<String> read =
                names("(?:parameters\\.get\\w*\\(|parameters, )\"([a-z-]+)\"",
                        Files.readString(core.resolve(Path.of("link", "JobContract.java"))));
        String description = Files.readString(own.resolve(Path.of("mqtt", "SpeckJob.java")));
        Set<String> described =
                names("--([a-z]+(?:-[a-z]+)*) ", description.substring(0, description.indexOf("*/")));
        assertEquals(new TreeSet<>(SpeckJob.ARGUMENTS), read);
        assertEquals(new TreeSet<>(SpeckJob.ARGUMENTS), described);
    }

    private static Set<String> names(String pattern, String text) {
        return Pattern.compile(pattern)
                .matcher(text)
                .results()
                .map(found -> found.group(1))
                .collect(Collectors.toCollection(TreeSet::new));
    }

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
        assertEquals(Batching.OFF, JobContract.parseBatching(Parameters.of(CONTRACT)));
        assertFalse(Batching.OFF.isOn());
        String[] asked = {"--batch-records", "10000", "--linger-ms", "60000", "--compression", "zstd"};
        assertEquals(new Batching(10_000, 60_000, true), JobContract.parseBatching(Parameters.of(asked)));
        assertTrue(JobContract.parseBatching(Parameters.of("--compression", "zstd")).isOn());
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

    @Test
    void whatIsToBeReadMustBeReadable() {
        assertEquals(
                "cannot use --until: \"p\" must be <producer>/<epoch>/<upto>, after which"
                        + " /<first>-<last>,... may come",
                refusal("until", "p"));
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
    void aPortNamesAllLinksTheFirstOfThemTwice() {
        Parameters two =
                Parameters.of(
                        with("--sink-client-id", "one-out", "--port", "b/one-out;c%2Fd/two-out"));
        JobContract contract = JobContract.parse(two);
        assertEquals(contract.sink(), contract.port().get(0));
        assertEquals("c/d", contract.port().get(1).topic());
        assertEquals("two-out", contract.port().get(1).clientId());
        assertEquals(1, JobContract.parse(Parameters.of(CONTRACT)).port().size());
        for (String wrong : List.of("b", "b/", "other/one-out;b/x-out")) {
            Parameters parameters =
                    Parameters.of(with("--sink-client-id", "one-out", "--port", wrong));
            Exception refusal =
                    assertThrows(
                            IllegalArgumentException.class, () -> JobContract.parse(parameters));
            assertTrue(refusal.getMessage().startsWith("cannot use --port"));
        }
    }

    private static String[] with(String... more) {
        return Stream.concat(Stream.of(CONTRACT), Stream.of(more)).toArray(String[]::new);
    }
}
