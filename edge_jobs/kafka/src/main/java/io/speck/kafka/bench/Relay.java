package io.speck.kafka.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
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
 * java -cp speck-flink-connector.jar io.speck.kafka.bench.Relay HOST:PORT IN GROUP
 * </pre>
 *
 * Each line on stdin is a topic: what IN holds is copied there, from its beginning, and the line
 * {@code relayed} comes on stdout.
 */
public final class Relay {
    private static final long COMMIT_NS = 1_000_000_000L;
    private static final Duration POLL = Duration.ofMillis(100);

    private final KafkaConsumer<byte[], byte[]> reader;
    private final KafkaProducer<byte[], byte[]> writer;
    private final List<TopicPartition> source;
    private final AtomicReference<Exception> failure = new AtomicReference<>();

    private Relay(String hosts, String source, String group) {
        this.reader = new KafkaConsumer<>(reading(hosts, group));
        this.writer = new KafkaProducer<>(writing(hosts));
        this.source = List.of(new TopicPartition(source, 0));
        reader.assign(this.source);
    }

    public static void main(String[] args) throws IOException {
        if (args.length != 3) {
            System.err.println("usage: Relay HOST:PORT IN-TOPIC GROUP");
            System.exit(2);
        }
        Relay relay = new Relay(args[0], args[1], args[2]);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            relay.copy(line.trim());
            System.out.println("relayed");
        }
    }

    private void copy(String sink) {
        long end = reader.endOffsets(source).get(source.get(0));
        reader.seekToBeginning(source);
        long committed = System.nanoTime();
        while (reader.position(source.get(0)) < end) {
            for (ConsumerRecord<byte[], byte[]> each : reader.poll(POLL)) {
                writer.send(
                        new ProducerRecord<>(sink, 0, null, each.value()),
                        (metadata, error) -> failure.compareAndSet(null, error));
            }
            if (System.nanoTime() - committed >= COMMIT_NS) {
                commit();
                committed = System.nanoTime();
            }
        }
        commit();
    }

    private void commit() {
        writer.flush();
        if (failure.get() != null) {
            throw new IllegalStateException("cannot go on", failure.get());
        }
        reader.commitSync();
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
