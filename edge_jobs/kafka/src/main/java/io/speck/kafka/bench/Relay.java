package io.speck.kafka.bench;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The least that can stand between two topics with the same client library and the same
 * acknowledgements: no engine, no numbers. Once a second it waits until the broker has all that was
 * sent, and then commits its place in the source, as a link does at a checkpoint. It is the floor
 * against which links over Kafka are measured.
 *
 * <pre>
 * java -cp speck-flink-connector.jar io.speck.kafka.bench.Relay HOST:PORT IN OUT GROUP
 * </pre>
 *
 * The group must have a place in IN. Prints {@code relay ready} before it reads, and runs until it
 * is killed.
 */
public final class Relay {
    private static final long COMMIT_NS = 1_000_000_000L;
    private static final Duration POLL = Duration.ofMillis(100);

    private Relay() {}

    public static void main(String[] args) {
        if (args.length != 4) {
            System.err.println("usage: Relay HOST:PORT IN-TOPIC OUT-TOPIC GROUP");
            System.exit(2);
        }
        try (KafkaConsumer<byte[], byte[]> reader = new KafkaConsumer<>(reading(args[0], args[3]));
                KafkaProducer<byte[], byte[]> writer = new KafkaProducer<>(writing(args[0]))) {
            reader.assign(List.of(new TopicPartition(args[1], 0)));
            run(reader, writer, args[2]);
        }
    }

    private static void run(
            KafkaConsumer<byte[], byte[]> reader,
            KafkaProducer<byte[], byte[]> writer,
            String sink) {
        AtomicReference<Exception> failure = new AtomicReference<>();
        System.out.println("relay ready");
        long committed = System.nanoTime();
        while (failure.get() == null) {
            for (ConsumerRecord<byte[], byte[]> each : reader.poll(POLL)) {
                writer.send(
                        new ProducerRecord<>(sink, 0, null, each.value()),
                        (metadata, error) -> failure.compareAndSet(null, error));
            }
            if (System.nanoTime() - committed >= COMMIT_NS) {
                writer.flush();
                if (failure.get() == null) {
                    reader.commitSync();
                }
                committed = System.nanoTime();
            }
        }
        throw new IllegalStateException("cannot go on", failure.get());
    }

    private static Map<String, Object> reading(String hosts, String group) {
        return Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, hosts,
                ConsumerConfig.GROUP_ID_CONFIG, group,
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none",
                ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class,
                ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
    }

    private static Map<String, Object> writing(String hosts) {
        return Map.of(
                ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, hosts,
                ProducerConfig.ACKS_CONFIG, "all",
                ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true,
                ProducerConfig.LINGER_MS_CONFIG, 2, // these two as our sinks have them
                ProducerConfig.BATCH_SIZE_CONFIG, 64 << 10,
                ProducerConfig.BUFFER_MEMORY_CONFIG, 64L << 20,
                ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class,
                ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
    }
}
