package io.speck.mqtt;

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
 * --source-broker tcp://HOST:PORT  --source-topic TOPIC
 * --sink-broker tcp://HOST:PORT    --sink-topic TOPIC   (ssl://HOST:PORT: encrypted)
 * --delivery at_most_once|at_least_once|exactly_once   (at_least_once)
 * --sink-readers none|some                             (none; until the broker says otherwise)
 * --receive-maximum N   most messages unacknowledged at once, to 65534 (10000)
 * --sink-window N       most messages under way at once, to 65534 (2000)
 * --max-record-bytes N  the sink broker's message_size_limit (1048576); larger ones are left out
 * --resend-window TIME  how long the sink keeps what the broker has acknowledged, to send it again
 *                       after a loss of the connection: three autosave intervals (15s); 0s: not
 * --resend-bytes N      how much of it at most (32 MiB, or a sixteenth of a small JVM's memory)
 * --batch-records N     most records in one message, 1 to 10000 (1)
 * --linger-ms N         how long a record may wait for others to go with, to 60000 (0: the shortest
 *                       that a timer waits, a millisecond)
 * --compression none|zstd  of messages (none)
 * --taken TEXT          what the reader before this one has taken of the source link, which is
 *                       dropped here: entries joined by ";", each {@code <producer>/<epoch>/<upto>}
 *                       or {@code <producer>/<epoch>/<upto>/<first>-<last>,<first>-<last>...}, the
 *                       producer percent-encoded, epochs in the order in which they were met
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
    private static final long CHECKPOINT_INTERVAL_MS = 1000;
    /** Records wait so long at most in a buffer between two tasks; Flink's 100 ms is more than links. */
    private static final long BUFFER_TIMEOUT_MS = 5;

    private static final int RECEIVE_MAXIMUM = 10_000;
    private static final int SINK_WINDOW = 2000;
    private static final int MOST_BYTES = 1_048_576;

    private final Parameters parameters;
    private final LinkConfig source;
    private final LinkConfig sink;
    private final HandOver taken;
    private final long attempt;
    private final SinkSettings settings;
    private final String name;
    private final StreamExecutionEnvironment environment;

    private SpeckJob(Parameters parameters, StreamExecutionEnvironment environment) {
        this.parameters = parameters;
        this.environment = environment;
        this.name = parameters.get("job-name");
        String clientId = parameters.get("client-id");
        Delivery delivery = Delivery.parse(parameters.get("delivery", "at_least_once"));
        this.taken = HandOver.parse(parameters.get("taken", ""));
        this.attempt = parameters.getLong("epoch", 0);
        this.settings =
                new SinkSettings(
                        readers(parameters.get("sink-readers", "none")),
                        parameters.getInt("max-record-bytes", MOST_BYTES),
                        parameters.getDuration("resend-window", SinkSettings.RESEND_WINDOW),
                        parameters.getLong("resend-bytes", 0),
                        parameters.getLong(
                                "resend-state-bytes", SinkSettings.RESEND_STATE_BYTES),
                        Batching.of(parameters));
        this.source =
                new LinkConfig(
                        BrokerAddress.parse(parameters.get("source-broker")),
                        parameters.get("source-topic"),
                        clientId,
                        delivery,
                        parameters.getInt("receive-maximum", RECEIVE_MAXIMUM));
        this.sink =
                new LinkConfig(
                        BrokerAddress.parse(parameters.get("sink-broker")),
                        parameters.get("sink-topic"),
                        clientId + "-out",
                        delivery,
                        parameters.getInt("sink-window", SINK_WINDOW));
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

    /** The payloads of the source topic's messages. Call once. */
    public SingleOutputStreamOperator<byte[]> source() {
        return environment
                .fromSource(
                        new MqttSource(source, taken),
                        WatermarkStrategy.noWatermarks(),
                        "mqtt-source")
                .uid("source")
                .setParallelism(1);
    }

    /** Publishes each record as a message of the sink topic. Call once. */
    public void sink(DataStream<byte[]> records) {
        records.sinkTo(new MqttSink(sink, attempt, settings))
                .uid("sink")
                .name("mqtt-sink")
                .setParallelism(1);
    }

    /** Submits the job under its name. */
    public void execute() throws Exception {
        environment.execute(name);
    }

    private static void configure(StreamExecutionEnvironment environment) {
        ReadableConfig given = environment.getConfiguration();
        if (!environment.getCheckpointConfig().isCheckpointingEnabled()) {
            environment.enableCheckpointing(CHECKPOINT_INTERVAL_MS);
        }
        environment.getCheckpointConfig().setMaxConcurrentCheckpoints(1);
        if (given.getOptional(CheckpointingOptions.TOLERABLE_FAILURE_NUMBER).isEmpty()) {
            // a broker that is away holds checkpoints up: no reason to fail, all waits in sessions
            environment.getCheckpointConfig().setTolerableCheckpointFailureNumber(Integer.MAX_VALUE);
        }
        if (given.getOptional(ExecutionOptions.BUFFER_TIMEOUT).isEmpty()) {
            environment.setBufferTimeout(BUFFER_TIMEOUT_MS);
        }
        environment.getConfig().enableObjectReuse();
    }

    private static boolean readers(String value) {
        return switch (value) {
            case "some" -> true;
            case "none" -> false;
            default ->
                    throw new IllegalArgumentException(
                            "cannot use --sink-readers \"" + value + "\": it must be none or some");
        };
    }
}
