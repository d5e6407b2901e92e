package io.speck.mqtt;

import io.speck.flink.sink.LinkSink;
import io.speck.link.JobContract;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * The sink of a job alone, restored from the job's state: it sends what its broker has forgotten
 * since the job ended, and finishes when the broker has all of it. It reads no link, and what the
 * job's other operators have in the state is left out.
 *
 * <p>Every job of ours has it in its jar, and it takes the job's own arguments.
 */
public final class ResendJob {
    private ResendJob() {}

    /** Submits the job. */
    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment();
        environment.execute(addTo(environment, args) + ": resend");
    }

    /**
     * Builds the job.
     *
     * @return the client id of the sink
     */
    public static String addTo(StreamExecutionEnvironment environment, String... args) {
        JobContract contract = JobContract.parse(Parameters.of(args));
        SpeckJob.configure(environment);
        Configuration ofOneOperator = new Configuration();
        ofOneOperator.set(StateRecoveryOptions.SAVEPOINT_IGNORE_UNCLAIMED_STATE, true);
        environment.configure(ofOneOperator);
        DataStream<byte[]> nothing =
                environment
                        .fromSequence(1, 1)
                        .setParallelism(1)
                        .filter(number -> false)
                        .setParallelism(1)
                        .map(number -> new byte[0])
                        .returns(byte[].class)
                        .setParallelism(1);
        SpeckJob.addSink(
                nothing,
                LinkSink.resending(contract.port(), contract.attempt(), contract.settings()));
        return contract.sink().clientId();
    }
}
