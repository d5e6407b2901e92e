package io.speck.mqtt;

import io.speck.flink.sink.LinkSink;
import io.speck.flink.source.LinkSource;
import io.speck.link.JobContract;
import io.speck.link.sink.LinkChooser;
import java.util.Set;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job between two links. Its arguments follow speck's job contract:
 *
 * <pre>
 * --job-name NAME  --client-id ID  --epoch N (this incarnation's attempt)
 * --sink-client-id ID   of this sink on this link (the client id and "-out"): what a checkpoint has
 *                       left to send under it goes to where the link is now
 * --port TEXT           all links of this sink, at its broker: {@code <topic>/<client id>}, joined
 *                       by ";", topics percent-encoded; the first is that of the other arguments
 * --source-broker tcp://HOST:PORT  --source-topic TOPIC
 * --sink-broker tcp://HOST:PORT    --sink-topic TOPIC   (ssl://HOST:PORT: encrypted; for Kafka
 *                       kafka://HOST:PORT,HOST:PORT and kafka+ssl://HOST:PORT)
 * --delivery at_most_once|at_least_once|exactly_once   (at_least_once)
 * --sink-readers none|some                             (none; until the broker says otherwise)
 * --receive-maximum N   most messages unacknowledged at once, to 65534 (10000)
 * --sink-window N       most messages under way at once, to 65534 (2000)
 * --max-record-bytes N  the sink broker's message_size_limit (1048576); larger ones are left out
 * --resend-window TIME  how long the sink keeps what the broker has acknowledged, to send it again
 *                       after a loss of the connection: three autosave intervals (15s); 0s: not
 * --resend-bytes N      how much of it at most (32 MiB, or a sixteenth of a small JVM's memory)
 * --resend-state-bytes N  how much of it at most in a checkpoint (1000000); 0: nothing
 * --batch-records N     most records in one message, 1 to 10000 (1)
 * --linger-ms N         how long a record may wait for others to go with, to 60000 (0: the shortest
 *                       that a timer waits, a millisecond)
 * --compression none|zstd  of messages (none)
 * --taken TEXT          what the previous reader of the source link has taken, which is
 *                       dropped here: entries joined by ";", each {@code <producer>/<epoch>/<upto>}
 *                       or {@code <producer>/<epoch>/<upto>/<first>-<last>,<first>-<last>...}, the
 *                       producer percent-encoded, epochs in the order in which they were met
 * --until TEXT          what is read at most, written like --taken: a message with another number
 *                       is neither taken nor acknowledged, and waits for the next start
 * </pre>
 *
 * and then the job's own.
 *
 * <pre>
 * SpeckJob job = SpeckJob.from(args);
 * job.sink(job.source().map(...).uid("map").name("map"));
 * job.execute();
 * </pre>
 *
 * <p>Object reuse is on: operators must not change a record that they have been given or have
 * passed on. Source and sink run at parallelism 1, what is between them at the environment's.
 */
public final class SpeckJob {
    /** The names of the arguments above: a job may have others of its own. */
    public static final Set<String> ARGUMENTS = JobContract.ARGUMENTS;

    private static final long CHECKPOINT_INTERVAL_MS = 1000;

    /**
     * How long a record waits at most in a buffer between two tasks. Flink's 100 ms would be more
     * than the latency of links.
     */
    private static final long BUFFER_TIMEOUT_MS = 5;

    private final Parameters parameters;
    private final JobContract contract;
    private final StreamExecutionEnvironment environment;

    private SpeckJob(Parameters parameters, StreamExecutionEnvironment environment) {
        this.parameters = parameters;
        this.contract = JobContract.parse(parameters);
        this.environment = environment;
    }

    /**
     * Reads the arguments and makes the environment ready.
     *
     * @throws IllegalArgumentException naming the argument that is missing or wrong
     */
    public static SpeckJob from(String... args) {
        return from(args, StreamExecutionEnvironment.getExecutionEnvironment());
    }

    /** The same with an environment of one's own, for tests. */
    public static SpeckJob from(String[] args, StreamExecutionEnvironment environment) {
        SpeckJob job = new SpeckJob(Parameters.of(args), environment);
        configure(environment);
        return job;
    }

    public StreamExecutionEnvironment environment() {
        return environment;
    }

    public Parameters parameters() {
        return parameters;
    }

    /** Returns the payloads of the source topic's messages. Call once. */
    public SingleOutputStreamOperator<byte[]> source() {
        return environment
                .fromSource(
                        new LinkSource(
                                contract.source(), contract.handOver(), contract.until()),
                        WatermarkStrategy.noWatermarks(),
                        "mqtt-source")
                .uid("source")
                .setParallelism(1);
    }

    /** Publishes each record to the sink topic, or to those of a port in turn. Call once. */
    public void sink(DataStream<byte[]> records) {
        sink(records, LinkChooser.inTurn());
    }

    /**
     * The same for a job whose records do not go to the links of a port in turn. Call once.
     *
     * @param chooser says to which link a record goes
     */
    public void sink(DataStream<byte[]> records, LinkChooser chooser) {
        addSink(
                records,
                new LinkSink(contract.port(), chooser, contract.attempt(), contract.settings()));
    }

    /** Under the same id in each job, by which its state is found. */
    static void addSink(DataStream<byte[]> records, LinkSink sink) {
        records.sinkTo(sink).uid("sink").name("mqtt-sink").setParallelism(1);
    }

    /** Submits the job under its name. */
    public void execute() throws Exception {
        environment.execute(contract.name());
    }

    static void configure(StreamExecutionEnvironment environment) {
        ReadableConfig configuration = environment.getConfiguration();
        if (!environment.getCheckpointConfig().isCheckpointingEnabled()) {
            environment.enableCheckpointing(CHECKPOINT_INTERVAL_MS);
        }
        environment.getCheckpointConfig().setMaxConcurrentCheckpoints(1);
        if (configuration.getOptional(CheckpointingOptions.TOLERABLE_FAILURE_NUMBER).isEmpty()) {
            // checkpoints fail while a broker is away: no reason to fail, all messages wait in
            // sessions
            environment.getCheckpointConfig().setTolerableCheckpointFailureNumber(Integer.MAX_VALUE);
        }
        if (configuration.getOptional(ExecutionOptions.BUFFER_TIMEOUT).isEmpty()) {
            environment.setBufferTimeout(BUFFER_TIMEOUT_MS);
        }
        environment.getConfig().enableObjectReuse();
    }
}
