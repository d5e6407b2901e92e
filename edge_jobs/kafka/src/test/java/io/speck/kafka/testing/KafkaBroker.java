package io.speck.kafka.testing;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.speck.link.testing.TestBroker;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A real Kafka, as the contract's tests see it; they come to it at {@code address}. */
public record KafkaBroker(KafkaServer server, String address) implements TestBroker {
    private static final Pattern MESSAGES = Pattern.compile("\"messages\":(\\d+)");

    /** Where everybody may come. */
    public static KafkaBroker of(KafkaServer server) {
        return new KafkaBroker(server, server.address());
    }

    /** Where a password is asked for. */
    public static KafkaBroker guarded(KafkaServer server) {
        return new KafkaBroker(server, server.guard().address());
    }

    @Override
    public void reserve(String clientId, String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = server.admin()) {
            try {
                NewTopic made = new NewTopic(topic, Optional.of(1), Optional.empty());
                admin.createTopics(List.of(made)).all().get();
            } catch (ExecutionException e) {
                if (!(e.getCause() instanceof TopicExistsException)) {
                    throw e;
                }
            }
            long end =
                    admin.listOffsets(Map.of(partition, OffsetSpec.latest()))
                            .partitionResult(partition)
                            .get()
                            .offset();
            admin.alterConsumerGroupOffsets(
                            clientId, Map.of(partition, new OffsetAndMetadata(end)))
                    .all()
                    .get();
        }
    }

    @Override
    public void publish(String topic, String record) throws Exception {
        Map<String, Object> settings =
                Map.of(
                        "bootstrap.servers",
                        "127.0.0.1:" + server.port(),
                        "key.serializer",
                        ByteArraySerializer.class,
                        "value.serializer",
                        ByteArraySerializer.class);
        try (var producer = new KafkaProducer<byte[], byte[]>(settings)) {
            producer.send(new ProducerRecord<>(topic, record.getBytes(UTF_8))).get();
        }
    }

    @Override
    public long taken(String clientId, String topic) throws Exception {
        try (Admin admin = server.admin()) {
            OffsetAndMetadata place =
                    admin.listConsumerGroupOffsets(clientId)
                            .partitionsToOffsetAndMetadata()
                            .get()
                            .get(new TopicPartition(topic, 0));
            Matcher messages = MESSAGES.matcher(place.metadata());
            return messages.find() ? Long.parseLong(messages.group(1)) : -1;
        }
    }

    @Override
    public void kill() throws Exception {
        server.kill();
    }

    @Override
    public void start() throws Exception {
        server.start();
    }

    @Override
    public void freeze() throws Exception {
        server.freeze();
    }

    @Override
    public void thaw() throws Exception {
        server.thaw();
    }

    @Override
    public void close() throws Exception {
        server.close();
    }
}
