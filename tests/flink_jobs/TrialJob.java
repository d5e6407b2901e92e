import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A job that misbehaves on request: numbers -> keyed count -> nothing. No connector, no broker.
 *
 * <p>Compiles against Flink 1.20 and 2.x, and ignores arguments that it does not know. Switches:
 * {@code --fail-main}, {@code --fail-after} (in main, once the job is submitted), {@code --exit},
 * {@code --exit-task} (in an operator, 2 s after its start), {@code --print} (a kilobyte a record),
 * {@code --fail-task}, {@code --fail-close}, {@code --chained} (one task, nothing keyed),
 * {@code --fail-null} (in main, without a message), {@code --fail-open} (a class is absent),
 * {@code --catch} (main catches all that execute() throws), {@code --second} (two pipelines).
 * With a value: {@code --hold-main} (a file: main waits as long as it exists), {@code --job-name}, {@code --records} (then it
 * finishes), {@code --count-uid}, {@code --parallelism}, {@code --checkpoints} (a folder),
 * {@code --hold-snapshot} (a file: snapshots last as long as it exists), {@code --hold-open} (a
 * file: operators open when it is gone), {@code --fail-when} (a file: they fail when it is there),
 * {@code --fill} (an operator fills the {@code heap}, the
 * {@code metaspace} or the {@code direct} memory).
 */
public final class TrialJob {
    private TrialJob() {}

    public static void main(String[] arguments) throws Exception {
        List<String> args = new ArrayList<>(Arrays.asList(arguments));
        if (args.contains("--fail-main")) {
            throw new IllegalStateException("cannot read the trial table");
        }
        if (args.contains("--fail-null")) {
            throw new NullPointerException();
        }
        hold(value(args, "--hold-main", ""));
        if (args.contains("--exit")) {
            System.exit(3);
        }
        long records = Long.parseLong(value(args, "--records", "" + Long.MAX_VALUE));
        String uid = value(args, "--count-uid", "count");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        setUp(env, args);
        build(env, args, records, uid);
        try {
            env.execute(value(args, "--job-name", "trial"));
        } catch (Throwable thrown) {
            if (!args.contains("--catch")) {
                throw thrown;
            }
        }
        if (args.contains("--second")) {
            build(env, args, records, uid);
            env.execute("second");
        }
        if (args.contains("--fail-after")) {
            throw new IllegalStateException("cannot say goodbye");
        }
    }

    private static void setUp(StreamExecutionEnvironment env, List<String> args) {
        int parallelism = Integer.parseInt(value(args, "--parallelism", "0"));
        if (parallelism > 0) {
            env.setParallelism(parallelism);
        }
        String folder = value(args, "--checkpoints", "");
        if (!folder.isEmpty()) {
            Configuration configuration = new Configuration();
            configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, folder);
            env.configure(configuration);
        }
    }

    private static void build(
            StreamExecutionEnvironment env, List<String> args, long records, String uid) {
        DataStream<Long> numbers =
                env.fromSource(
                                new NumberSequenceSource(1, records),
                                WatermarkStrategy.noWatermarks(),
                                "numbers")
                        .uid("numbers")
                        .map(number -> slowly(number, 1))
                        .uid("slowly")
                        .name("slowly");
        if (!args.contains("--chained")) {
            numbers =
                    numbers.keyBy(number -> number % 8)
                            .process(new Count(args))
                            .uid(uid)
                            .name("count");
        }
        numbers.sinkTo(new DiscardingSink<>()).uid("nothing").name("nothing");
    }

    private static String value(List<String> args, String name, String otherwise) {
        int at = args.indexOf(name);
        return at < 0 || at + 1 == args.size() ? otherwise : args.get(at + 1);
    }

    private static void hold(String file) throws InterruptedException {
        while (!file.isEmpty() && Files.exists(Path.of(file))) {
            Thread.sleep(20);
        }
    }

    private static long slowly(long number, long millis) throws InterruptedException {
        Thread.sleep(millis);
        return number;
    }

    private static void fill(String what) throws Exception {
        List<Object> held = new ArrayList<>();
        while (!what.isEmpty()) {
            switch (what) {
                case "heap" -> held.add(new byte[1 << 20]);
                case "direct" -> held.add(java.nio.ByteBuffer.allocateDirect(1 << 20));
                default -> held.add(new Copy().define());
            }
        }
    }

    /** Defines the job's own class again and again. */
    private static final class Copy extends ClassLoader {
        Class<?> define() throws java.io.IOException {
            try (var in = TrialJob.class.getResourceAsStream("TrialJob.class")) {
                byte[] bytes = in.readAllBytes();
                return defineClass("TrialJob", bytes, 0, bytes.length);
            }
        }
    }

    /** Counts by key; fails, or waits at snapshots, when told to. */
    private static final class Count extends KeyedProcessFunction<Long, Long, Long>
            implements CheckpointedFunction {
        private final boolean exitTask;
        private final boolean print;
        private final boolean failTask;
        private final boolean failClose;
        private final boolean failOpen;
        private final String holdSnapshot;
        private final String holdOpen;
        private final String failWhen;
        private final String fill;
        private transient ValueState<Long> count;
        private transient long opened;

        Count(List<String> args) {
            exitTask = args.contains("--exit-task");
            print = args.contains("--print");
            failTask = args.contains("--fail-task");
            failClose = args.contains("--fail-close");
            failOpen = args.contains("--fail-open");
            holdSnapshot = value(args, "--hold-snapshot", "");
            holdOpen = value(args, "--hold-open", "");
            failWhen = value(args, "--fail-when", "");
            fill = value(args, "--fill", "");
        }

        @Override
        public void open(OpenContext context) throws Exception {
            hold(holdOpen);
            if (failOpen) {
                throw new NoClassDefFoundError("lib/Gone");
            }
            fill(fill);
            opened = System.nanoTime();
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Long.class));
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out)
                throws Exception {
            if (exitTask && System.nanoTime() - opened > 2_000_000_000L) {
                System.exit(7);
            }
            if (print) {
                System.out.println("printed ".repeat(128));
            }
            if (failTask || !failWhen.isEmpty() && Files.exists(Path.of(failWhen))) {
                throw new IllegalStateException("cannot count " + number);
            }
            count.update(count.value() == null ? 1 : count.value() + 1);
            out.collect(count.value());
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            hold(holdSnapshot);
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {}

        @Override
        public void close() {
            if (failClose) {
                throw new IllegalStateException("cannot close the trial table");
            }
        }
    }
}
