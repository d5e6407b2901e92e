package io.speck.mqtt.testing;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import com.hivemq.client.mqtt.mqtt5.message.publish.puback.Mqtt5PubAckReasonCode;
import io.speck.link.testing.Wait;
import io.speck.mqtt.connection.Topics;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;

/** A small Flink, a real broker, and a publisher and a listener at it; for whole jobs. */
public abstract class JobTest {
    /** Of the cluster that the class has registered. */
    public abstract ReportedMetrics metrics();

    @TempDir public Path folder;
    public Mosquitto broker;
    public TestClient client;
    public TestClient out;
    public TestJob job;

    @BeforeEach
    public void open() throws Exception {
        broker = Mosquitto.started(folder);
        client = new TestClient(broker);
        out = new TestClient(broker).listen("out");
    }

    @AfterEach
    public void close() throws Exception {
        if (job != null) {
            job.cancel();
        }
        client.close();
        out.close();
        broker.close();
        Wait.until("no network thread is left", () -> ourThreads().isEmpty(), this::ourThreads);
    }

    public List<String> ourThreads() {
        return Thread.getAllStackTraces().keySet().stream()
                .map(Thread::getName)
                .filter(name -> name.startsWith("speck-mqtt-"))
                .toList();
    }

    public TestJob job() {
        job = new TestJob(broker, "in", broker, "out");
        return job;
    }

    /**
     * A job is RUNNING before its tasks are, and these have subscribed; a checkpoint needs all of
     * them.
     */
    public void startAndSubscribe(TestJob started) throws Exception {
        started.start();
        if (started.hasCheckpoints()) {
            Wait.until("the first checkpoint is complete", () -> completedCheckpoints() > 0);
        } else {
            Wait.until(
                    "the source has subscribed",
                    () -> gauge("Source: mqtt-source.*\\.connected$") == 1);
        }
    }

    /** How many checkpoints of the running job are complete. */
    public long completedCheckpoints() {
        return gauge("numberOfCompletedCheckpoints");
    }

    /** The id of the last one; 0 when there is none. */
    public long lastCompletedCheckpoint() {
        return gauge("lastCompletedCheckpointId");
    }

    private long gauge(String name) {
        return metrics().reporter().findMetrics(job.client().getJobID(), name).values().stream()
                .mapToLong(metric -> ((Number) ((Gauge<?>) metric).getValue()).longValue())
                .max()
                .orElse(0);
    }

    /** Two complete checkpoints later nothing is under way. */
    public void awaitAcknowledged() throws Exception {
        long before = completedCheckpoints();
        Wait.until("checkpoints go on", () -> completedCheckpoints() > before + 1);
    }

    public static List<String> records(int from, int to) {
        return IntStream.rangeClosed(from, to).mapToObj(i -> "r" + i).toList();
    }

    public List<String> recordsOut() {
        return out.payloads().stream().filter(payload -> payload.startsWith("r")).toList();
    }

    public void awaitRecords(int count) throws Exception {
        Wait.until(count + " records came", () -> recordsOut().size() >= count, this::recordsOut);
    }

    /** Of the running job; -1 when it is not there. */
    public long counter(String name) {
        return metrics().reporter().findMetrics(job.client().getJobID(), name).values().stream()
                .mapToLong(metric -> ((Counter) metric).getCount())
                .max()
                .orElse(-1);
    }

    /** Feeds until the source is seen to have subscribed: its session then holds a message. */
    public boolean publishAndSee(String payload) {
        CompletableFuture<?> published = client.publish("in", payload, null);
        published.join();
        return ((Mqtt5PublishResult.Mqtt5Qos1Result) published.join()).getPubAck().getReasonCode()
                == Mqtt5PubAckReasonCode.SUCCESS;
    }

    /** As the control plane does it before a producer starts. */
    public static void reserve(Mosquitto at, String clientId, String topic) {
        var reserving =
                MqttClient.builder()
                        .useMqttVersion5()
                        .identifier(clientId)
                        .serverHost("127.0.0.1")
                        .serverPort(at.port())
                        .buildBlocking();
        // acknowledges nothing: a sink may publish before this one is gone
        reserving.toAsync().publishes(MqttGlobalPublishFilter.ALL, message -> {}, true);
        reserving.connectWith().cleanStart(false).sessionExpiryInterval(600).send();
        reserving.subscribeWith().topicFilter(topic).qos(MqttQos.AT_LEAST_ONCE).send();
        reserving.disconnect();
        try (TestClient control = new TestClient(at)) { // sinks go on, and this one takes nothing
            control.retain(Topics.ofSession(topic, clientId), new String(Topics.sessionMade(), UTF_8));
        }
    }
}
