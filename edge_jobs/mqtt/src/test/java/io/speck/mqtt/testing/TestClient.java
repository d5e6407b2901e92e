package io.speck.mqtt.testing;

import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserProperty;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import io.airlift.compress.zstd.ZstdDecompressor;
import io.speck.link.protocol.BatchReader;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.Stamp;
import io.speck.link.testing.Wait;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/** Publishes and listens, reconnecting by itself. */
public final class TestClient implements AutoCloseable {
    private final Mqtt5AsyncClient client;
    private final ConcurrentLinkedQueue<Mqtt5Publish> received = new ConcurrentLinkedQueue<>();

    private final AtomicInteger messages = new AtomicInteger();
    private volatile String last = "";

    public TestClient(Mosquitto broker) {
        this(broker, "test-" + UUID.randomUUID());
    }

    /** Has the session of that client id, if there is one. */
    public TestClient(Mosquitto broker, String clientId) {
        client =
                MqttClient.builder()
                        .useMqttVersion5()
                        .identifier(clientId)
                        .serverHost("127.0.0.1")
                        .serverPort(broker.port())
                        .automaticReconnect()
                        .initialDelay(50, java.util.concurrent.TimeUnit.MILLISECONDS)
                        .maxDelay(200, java.util.concurrent.TimeUnit.MILLISECONDS)
                        .applyAutomaticReconnect()
                        .buildAsync();
        client.publishes(MqttGlobalPublishFilter.ALL, this::receive);
        client.connectWith().cleanStart(false).sessionExpiryInterval(600).send().join();
    }

    /** Messages with several records are taken for as many, each with a stamp of its own. */
    private void receive(Mqtt5Publish message) {
        messages.incrementAndGet();
        String type = message.getContentType().map(Object::toString).orElse("");
        for (Message.Format format : Message.Format.values()) {
            if (format != Message.Format.PLAIN && format.contentType().equals(type)) {
                receiveBatch(message, format);
                return;
            }
        }
        received.add(message);
        last = text(message);
    }

    private void receiveBatch(Mqtt5Publish message, Message.Format format) {
        Stamp.OfBatch stamp = Stamp.parseBatch(stampOf(message));
        BatchReader records =
                BatchReader.open(
                        format,
                        message.getPayloadAsBytes(),
                        stamp.count(),
                        new ZstdDecompressor());
        for (long number = stamp.first(); records.hasNext(); number++) {
            Mqtt5Publish one =
                    Mqtt5Publish.builder()
                            .topic(message.getTopic())
                            .payload(records.next())
                            .userProperties()
                            .add(Stamp.PROPERTY, stamp.prefix() + number)
                            .applyUserProperties()
                            .build();
            received.add(one);
            last = text(one);
        }
    }

    /** How many messages brought them. */
    public int messages() {
        return messages.get();
    }

    private static String stampOf(Mqtt5Publish message) {
        return message.getUserProperties().asList().stream()
                .filter(property -> property.getName().toString().equals(Stamp.PROPERTY))
                .map(property -> property.getValue().toString())
                .findFirst()
                .orElseThrow(() -> new AssertionError("no stamp: " + text(message)));
    }

    /** The newest payload, or an empty text. */
    public String last() {
        return last;
    }

    public TestClient listen(String topic) {
        client.subscribeWith().topicFilter(topic).qos(MqttQos.AT_LEAST_ONCE).send().join();
        return this;
    }

    /** Completes when the broker has it. */
    public CompletableFuture<?> publish(String topic, String payload, String stamp) {
        var builder =
                Mqtt5Publish.builder()
                        .topic(topic)
                        .payload(payload.getBytes(StandardCharsets.UTF_8))
                        .qos(MqttQos.AT_LEAST_ONCE);
        if (stamp != null) {
            builder.userProperties().add(Stamp.PROPERTY, stamp).applyUserProperties();
        }
        return client.publish(builder.build());
    }

    /** Several records as one message, by producer p in the epoch. */
    public CompletableFuture<?> publishTogether(String topic, long epoch, long first, Message records) {
        return client.publish(
                Mqtt5Publish.builder()
                        .topic(topic)
                        .payload(records.payload())
                        .qos(MqttQos.AT_LEAST_ONCE)
                        .contentType(records.format().contentType())
                        .userProperties()
                        .add(
                                Stamp.PROPERTY,
                                Stamp.withCount("p/" + epoch + "/" + first, records.count()))
                        .applyUserProperties()
                        .build());
    }

    /** Says something for good; with an empty payload, unsays it. */
    public void retain(String topic, String payload) {
        client.publishWith()
                .topic(topic)
                .payload(payload.getBytes(StandardCharsets.UTF_8))
                .qos(MqttQos.AT_LEAST_ONCE)
                .retain(true)
                .send()
                .join();
    }

    /** Payloads r{from}..r{to}, numbered so by producer p in the epoch. */
    public void publishNumbered(String topic, long epoch, int from, int to) {
        List<CompletableFuture<?>> all = new ArrayList<>();
        for (int i = from; i <= to; i++) {
            all.add(publish(topic, "r" + i, "p/" + epoch + "/" + i));
        }
        CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).join();
    }

    public List<String> payloads() {
        return received.stream().map(TestClient::text).toList();
    }

    /** By topic, the last payload of each. */
    public Map<String, String> lastByTopic() {
        Map<String, String> last = new LinkedHashMap<>();
        received.forEach(message -> last.put(message.getTopic().toString(), text(message)));
        return last;
    }

    public List<String> stamps() {
        return received.stream()
                .flatMap(message -> message.getUserProperties().asList().stream())
                .filter(property -> property.getName().toString().equals(Stamp.PROPERTY))
                .map(Mqtt5UserProperty::getValue)
                .map(Object::toString)
                .toList();
    }

    /**
     * The payloads that are left when repeats are dropped by their stamps, in order of arrival.
     * Fails when a stamp has come with two payloads, or a message without one.
     */
    public List<String> distinct() {
        Map<String, String> byStamp = new LinkedHashMap<>();
        for (Mqtt5Publish message : received) {
            String stamp = stampOf(message);
            String before = byStamp.putIfAbsent(stamp, text(message));
            if (before != null && !before.equals(text(message))) {
                throw new AssertionError(stamp + " is " + before + " and " + text(message));
            }
        }
        return new ArrayList<>(byStamp.values());
    }

    public void await(int count) throws Exception {
        Wait.until(count + " messages came", () -> received.size() >= count, this::payloads);
    }

    @Override
    public void close() {
        client.disconnectWith().sessionExpiryInterval(0).send().exceptionally(e -> null).join();
    }

    private static String text(Mqtt5Publish message) {
        return new String(message.getPayloadAsBytes(), StandardCharsets.UTF_8);
    }
}
