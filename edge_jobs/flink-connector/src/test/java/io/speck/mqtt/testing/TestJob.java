package io.speck.mqtt.testing;

import io.speck.link.testing.Wait;
import io.speck.mqtt.ResendJob;
import io.speck.mqtt.SpeckJob;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A job source -> map -> sink on the test's mini cluster. */
public final class TestJob {
    public static final String CLIENT_ID = "speck-0a1b2c3d-test-89abcdef";

    private static final Duration NEVER = Duration.ofHours(1);

    private final List<String> args = new ArrayList<>();
    private final Configuration configuration = new Configuration();
    private MapFunction<byte[], byte[]> map = payload -> payload;
    private boolean hasCheckpoints = true;
    private JobClient running;

    public TestJob(Mosquitto from, String sourceTopic, Mosquitto to, String sinkTopic) {
        this(from.address(), sourceTopic, to.address(), sinkTopic);
    }

    /** Between brokers of any kind. */
    public TestJob(String from, String sourceTopic, String to, String sinkTopic) {
        with("job-name", "test").with("client-id", CLIENT_ID).with("epoch", "1");
        with("source-broker", from).with("source-topic", sourceTopic);
        with("sink-broker", to).with("sink-topic", sinkTopic);
        every(Duration.ofMillis(100));
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 100);
        configuration.set(
                RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(20));
    }

    public TestJob with(String name, String value) {
        args.add("--" + name);
        args.add(value);
        return this;
    }

    public TestJob every(Duration checkpointInterval) {
        configuration.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, checkpointInterval);
        return this;
    }

    /**
     * Makes no checkpoints but savepoints. A long interval is not enough: Flink makes one whenever
     * it starts the coordinator's schedule anew, which it does when all tasks run, once the
     * shortest pause between checkpoints is over.
     */
    public TestJob withoutCheckpoints() {
        hasCheckpoints = false;
        configuration.set(CheckpointingOptions.MIN_PAUSE_BETWEEN_CHECKPOINTS, NEVER);
        return every(NEVER);
    }

    boolean hasCheckpoints() {
        return hasCheckpoints;
    }

    public TestJob from(String savepoint) {
        configuration.set(StateRecoveryOptions.SAVEPOINT_PATH, savepoint);
        return this;
    }

    /** Keeps the newest checkpoint when it is cancelled. */
    public TestJob keeping(Path folder) {
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, folder.toUri().toString());
        configuration.set(
                CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
                ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        return this;
    }

    /** Of a job that was {@link #keeping} its checkpoints. */
    public String newestCheckpoint(Path folder) throws IOException {
        return checkpoint(folder).orElseThrow().toUri().toString();
    }

    /** All of it, as long as its state is small; 0 when there is none. */
    public long newestCheckpointBytes(Path folder) throws IOException {
        try {
            Optional<Path> newest = checkpoint(folder);
            return newest.isEmpty() ? 0 : Files.size(newest.get().resolve("_metadata"));
        } catch (NoSuchFileException gone) { // the next one is there
            return 0;
        }
    }

    /** Waits for the first one. */
    public void awaitCheckpoint(Path folder) throws Exception {
        Wait.until("there is a checkpoint", () -> checkpoint(folder).isPresent());
    }

    private Optional<Path> checkpoint(Path folder) throws IOException {
        Path own = folder.resolve(running.getJobID().toString());
        if (!Files.isDirectory(own)) {
            return Optional.empty();
        }
        try (Stream<Path> found = Files.list(own)) {
            return found.filter(path -> Files.exists(path.resolve("_metadata")))
                    .max(Comparator.comparingInt(TestJob::numberOf));
        }
    }

    private static int numberOf(Path checkpoint) {
        return Integer.parseInt(checkpoint.getFileName().toString().replace("chk-", ""));
    }

    public TestJob mapping(MapFunction<byte[], byte[]> function) {
        map = function;
        return this;
    }

    public TestJob start() throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.setParallelism(1);
        SpeckJob job = SpeckJob.from(args.toArray(String[]::new), environment);
        job.sink(job.source().map(map).returns(byte[].class).uid("map").name("map"));
        running = environment.executeAsync("test");
        Wait.until("the job runs", () -> status() == JobStatus.RUNNING);
        return this;
    }

    /** Sends again what the broker of the sink has forgotten, from a state of this job. */
    public void resend(String state) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(
                        new Configuration(configuration)
                                .set(StateRecoveryOptions.SAVEPOINT_PATH, state));
        ResendJob.addTo(environment, args.toArray(String[]::new));
        environment.execute("resend");
    }

    public JobClient client() {
        return running;
    }

    public JobStatus status() throws Exception {
        return running.getJobStatus().get();
    }

    public String stop(String folder) throws Exception {
        return running.stopWithSavepoint(false, folder, SavepointFormatType.CANONICAL).get();
    }

    public void cancel() throws Exception {
        if (running != null && !status().isGloballyTerminalState()) {
            running.cancel().get();
            Wait.until("the job ends", () -> status().isGloballyTerminalState());
        }
    }
}
