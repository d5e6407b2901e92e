package io.speck.jobs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.mqtt.Parameters;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.util.CloseableIterator;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Each job's flow in a real (local) Flink, from records to records, without brokers. */
@Tag("long")
class FlowsTest {
    private static final String[] BAD = {
        "", "nonsense", "{}", "[1]", "{\"id\":1}", "{\"end\":true}", "\u0000\u0001",
        Records.json("A1", 3, 2000, "A1-01", 400), "{\"id\":1,\"stream\":\"\\ud800\"}"
    };

    private static List<String> run(
            Function<DataStream<byte[]>, DataStream<byte[]>> flow, List<String> records)
            throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(PipelineOptions.GENERIC_TYPES, false); // no Kryo anywhere
        configuration.set(PipelineOptions.AUTO_GENERATE_UIDS, false); // a uid everywhere
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(1, configuration);
        environment.setRuntimeMode(RuntimeExecutionMode.STREAMING);
        DataStream<byte[]> source =
                environment
                        .fromData(
                                records.stream().map(Records::bytes).toList(),
                                PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO)
                        .uid("source");
        List<String> results = new ArrayList<>();
        DataStream<byte[]> end = flow.apply(source);
        for (StreamNode node : environment.getStreamGraph(false).getStreamNodes()) {
            assertTrue(node.getTransformationUID() != null, node.getOperatorName());
        }
        configuration.set(PipelineOptions.AUTO_GENERATE_UIDS, true); // for the collecting sink
        environment.configure(configuration);
        try (CloseableIterator<byte[]> collected = end.executeAndCollect()) {
            collected.forEachRemaining(record -> results.add(Records.text(record)));
        }
        return results;
    }

    private static List<String> trace() {
        List<String> records = new ArrayList<>(Arrays.asList(BAD));
        records.add(Records.json("A1", 1, 1000, "A1-01", 10));
        records.add(Records.json("B1", 1, 2000, "B1-01", 10));
        records.addAll(Arrays.asList(BAD));
        records.add(Records.json("A1", 2, 61_000, "A1-01", 10));
        records.add(Records.json("A1", 2, 61_000, "A1-01", 10));
        records.add(Records.endJson("A1", 61_000));
        records.add(Records.endJson("B1", 2000));
        return records;
    }

    @Test
    void cleanPassesGoodRecordsUnchanged() throws Exception {
        List<String> expected = new ArrayList<>(trace());
        expected.removeAll(Arrays.asList(BAD));
        assertEquals(expected, run(Clean::flow, trace()));
    }

    @Test
    void forwardAndPassThroughPassEverything() throws Exception {
        assertEquals(trace(), run(Forward::flow, trace()));
        assertEquals(trace(), run(PassThrough::flow, trace()));
    }

    @Test
    void burnPassesItsShareOfAnything() throws Exception {
        Parameters parameters = Parameters.of("--cpu-us", "10", "--selectivity", "0.5");
        assertEquals(
                trace().size() / 2, run(in -> Burn.flow(in, parameters), trace()).size());
    }

    @Test
    void localStatsClosesItsWindowsAtTheEndMarks() throws Exception {
        Parameters parameters = Parameters.of("--site", "A", "--streams", "A1,B1");
        List<String> results = run(in -> LocalStats.flow(in, parameters), trace());
        assertEquals(3, results.size(), results.toString());
        assertTrue(results.get(2).contains("\"window_start_ms\":60000"), results.toString());
        assertTrue(results.get(2).contains("\"count\":2"), results.toString());
    }

    @Test
    void mergeCountsOnce() throws Exception {
        Parameters parameters = Parameters.of("--streams", "A1,B1", "--window", "60s");
        List<String> results = run(in -> Merge.flow(in, parameters), trace());
        assertEquals(2, results.size(), results.toString());
        assertTrue(results.get(0).contains("\"sites\":{\"A\":1,\"B\":1}"), results.toString());
        assertTrue(results.get(1).contains("\"count\":1,"), results.toString());
    }

    @Test
    void missingStreamsAreTold() {
        assertEquals(
                "cannot start the job: argument --streams is missing",
                assertThrows(
                                IllegalArgumentException.class,
                                () -> Windows.from(Parameters.of("--window", "60s")))
                        .getMessage());
        assertThrows(
                IllegalArgumentException.class,
                () -> Windows.from(Parameters.of("--streams", "A1", "--window", "0s")));
    }

    @Test
    void unknownArgumentsAreIgnored() {
        Arguments.logUnknown(Parameters.of("--job-name", "p", "--note", "x"), "streams");
    }
}
