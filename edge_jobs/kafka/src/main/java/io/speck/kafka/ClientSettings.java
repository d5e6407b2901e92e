package io.speck.kafka;

import io.speck.link.transport.Credentials;
import io.speck.link.transport.LinkConfig;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.SslConfigs;
import org.apache.kafka.common.security.plain.PlainLoginModule;
import org.apache.kafka.common.security.scram.ScramLoginModule;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The settings of the clients of a link. Credentials are read anew for each client. */
final class ClientSettings {
    /** How long a broker that says nothing is waited for by what is not tried again by itself. */
    static final int CALL_TIMEOUT_MS = 5000;

    private static final int DELIVERY_TIMEOUT_MS = 120_000;
    private static final int REQUEST_TIMEOUT_MS = 15_000;

    /** After so long a producer has an outcome for each record, or does not live any more. */
    static final int LONGEST_DELIVERY_MS = DELIVERY_TIMEOUT_MS + 2 * REQUEST_TIMEOUT_MS;

    private static final int RECONNECT_MAX_MS = 500;
    private static final long YEAR_MS = 365L * 24 * 3600 * 1000;
    private static final int MAX_REQUEST_BYTES = 128 << 20; // the broker's own limit counts
    private static final long BUFFER_BYTES = 64L << 20; // above what waits for a broker
    private static final int LINGER_MS = 2; // little for latency, enough for a batch
    private static final int BATCH_BYTES = 64 << 10;

    /**
     * Of one answer: it must have come within the timeout of its request, else it is asked for again
     * from its beginning, for ever over a network that is too slow. Kafka's default is 1 MiB.
     */
    private static final int FETCH_BYTES = 256 << 10;

    private static final String USUAL_MECHANISM = "SCRAM-SHA-512";
    private static final String PLAIN = "PLAIN";

    private ClientSettings() {}

    static Map<String, Object> ofAdmin(LinkConfig link) {
        Map<String, Object> settings = common(link);
        settings.put(CommonClientConfigs.DEFAULT_API_TIMEOUT_MS_CONFIG, CALL_TIMEOUT_MS);
        settings.put(CommonClientConfigs.REQUEST_TIMEOUT_MS_CONFIG, CALL_TIMEOUT_MS);
        return settings;
    }

    static Map<String, Object> ofProducer(LinkConfig link) {
        boolean acknowledged = link.delivery().isAcknowledged();
        Map<String, Object> settings = common(link);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, acknowledged);
        settings.put(ProducerConfig.ACKS_CONFIG, acknowledged ? "all" : "1");
        settings.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, DELIVERY_TIMEOUT_MS);
        settings.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, REQUEST_TIMEOUT_MS);
        settings.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, CALL_TIMEOUT_MS);
        settings.put(ProducerConfig.METADATA_MAX_IDLE_CONFIG, YEAR_MS);
        settings.put(ProducerConfig.MAX_REQUEST_SIZE_CONFIG, MAX_REQUEST_BYTES);
        settings.put(ProducerConfig.BUFFER_MEMORY_CONFIG, BUFFER_BYTES);
        settings.put(ProducerConfig.LINGER_MS_CONFIG, LINGER_MS);
        settings.put(ProducerConfig.BATCH_SIZE_CONFIG, BATCH_BYTES);
        return settings;
    }

    /** @param committed whether to leave out what belongs to transactions that have not ended */
    static Map<String, Object> ofConsumer(LinkConfig link, boolean committed) {
        Map<String, Object> settings = common(link);
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, link.clientId());
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        settings.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, false);
        settings.put(
                ConsumerConfig.ISOLATION_LEVEL_CONFIG,
                committed ? "read_committed" : "read_uncommitted");
        settings.put(ConsumerConfig.FETCH_MAX_BYTES_CONFIG, FETCH_BYTES);
        settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, FETCH_BYTES);
        settings.put(ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, CALL_TIMEOUT_MS);
        settings.put(ConsumerConfig.REQUEST_TIMEOUT_MS_CONFIG, CALL_TIMEOUT_MS);
        return settings;
    }

    private static Map<String, Object> common(LinkConfig link) {
        Credentials credentials = Credentials.forBroker(link.broker());
        Map<String, Object> settings = new HashMap<>();
        settings.put(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, link.broker().hosts());
        settings.put(CommonClientConfigs.CLIENT_ID_CONFIG, link.clientId());
        settings.put(CommonClientConfigs.RECONNECT_BACKOFF_MAX_MS_CONFIG, RECONNECT_MAX_MS);
        settings.put(CommonClientConfigs.CONNECTIONS_MAX_IDLE_MS_CONFIG, -1L);
        settings.put(CommonClientConfigs.METRIC_REPORTER_CLASSES_CONFIG, ""); // no JMX
        settings.put(CommonClientConfigs.ENABLE_METRICS_PUSH_CONFIG, false);
        boolean encrypted =
                credentials.ca() != null || link.broker().scheme().equals(KafkaAddress.ENCRYPTED);
        boolean authenticated = credentials.user() != null;
        settings.put(
                CommonClientConfigs.SECURITY_PROTOCOL_CONFIG,
                (authenticated ? "SASL_" : "") + (encrypted ? "SSL" : "PLAINTEXT"));
        if (authenticated) {
            addPassword(settings, credentials);
        }
        if (encrypted) {
            addCertificates(settings, credentials);
        }
        return settings;
    }

    private static void addPassword(Map<String, Object> settings, Credentials credentials) {
        String mechanism =
                credentials.mechanism() == null ? USUAL_MECHANISM : credentials.mechanism();
        Class<?> module =
                mechanism.equals(PLAIN) ? PlainLoginModule.class : ScramLoginModule.class;
        String password = credentials.password() == null ? "" : credentials.password();
        settings.put(SaslConfigs.SASL_MECHANISM, mechanism);
        settings.put(
                SaslConfigs.SASL_JAAS_CONFIG,
                "%s required username=%s password=%s;"
                        .formatted(module.getName(), quote(credentials.user()), quote(password)));
    }

    private static String quote(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /** Without a CA it trusts what the JVM trusts; the broker's host name is always verified. */
    private static void addCertificates(Map<String, Object> settings, Credentials credentials) {
        if (credentials.ca() != null) {
            settings.put(SslConfigs.SSL_TRUSTSTORE_TYPE_CONFIG, "PEM");
            settings.put(
                    SslConfigs.SSL_TRUSTSTORE_CERTIFICATES_CONFIG, read(credentials.ca()));
        }
        if (credentials.cert() != null && credentials.key() != null) {
            settings.put(SslConfigs.SSL_KEYSTORE_TYPE_CONFIG, "PEM");
            settings.put(
                    SslConfigs.SSL_KEYSTORE_CERTIFICATE_CHAIN_CONFIG, read(credentials.cert()));
            settings.put(SslConfigs.SSL_KEYSTORE_KEY_CONFIG, read(credentials.key()));
        }
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot read the certificates in " + file, e);
        }
    }
}
