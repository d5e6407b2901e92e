package io.speck.runtime;

import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Jobs for the tests, put into a jar of their own by {@link RunningSite}. */
final class SampleJobs {
    private SampleJobs() {}

    /** Runs until it is stopped. */
    public static final class Endless {
        private Endless() {}

        public static void main(String[] args) throws Exception {
            run(new Slowly());
        }
    }

    /** Its operator throws when it is closed, which is fatal for a task that is being cancelled. */
    public static final class FailsToClose {
        private FailsToClose() {}

        public static void main(String[] args) throws Exception {
            run(
                    new Closing() {
                        @Override
                        public void close() {
                            throw new IllegalStateException("cannot close the sample");
                        }
                    });
        }
    }

    /** Its operator does not end when it is cancelled. */
    public static final class NeverEnds {
        private NeverEnds() {}

        public static void main(String[] args) throws Exception {
            run(
                    new Closing() {
                        @Override
                        public void close() {
                            while (true) {
                                Thread.onSpinWait();
                            }
                        }
                    });
        }
    }

    private abstract static class Closing extends RichMapFunction<Long, Long> {
        @Override
        public Long map(Long value) throws InterruptedException {
            Thread.sleep(1); // the load of the test, nothing waits for it
            return value;
        }

        @Override
        public abstract void close();
    }

    private static void run(MapFunction<Long, Long> function) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment();
        environment
                .fromSequence(0, Long.MAX_VALUE)
                .uid("source")
                .map(function)
                .uid("map")
                .sinkTo(new DiscardingSink<>())
                .uid("sink");
        environment.execute("sample");
    }

    private static final class Slowly implements MapFunction<Long, Long> {
        @Override
        public Long map(Long value) throws InterruptedException {
            Thread.sleep(1); // the load of the test, nothing waits for it
            return value;
        }
    }
}
