package io.speck.kafka;

import io.speck.link.transport.LinkConfig;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * The topic of a link, as it is now.
 *
 * @param id by which it differs from one of the same name that was there before
 * @param maxMessageBytes the largest batch of records that it takes, with all around them
 */
record LinkTopic(String name, String id, int partitions, int maxMessageBytes) {
    private static final Pattern NAME = Pattern.compile("[a-zA-Z0-9._-]{1,249}");
    private static final Set<String> NO_NAMES = Set.of(".", "..");

    /** As the control plane creates the topics of links: nothing is deleted by its age. */
    private static final Map<String, String> CONFIG =
            Map.of(
                    TopicConfig.RETENTION_MS_CONFIG, "-1",
                    TopicConfig.RETENTION_BYTES_CONFIG, Long.toString(1L << 30),
                    TopicConfig.SEGMENT_BYTES_CONFIG, Integer.toString(64 << 20),
                    TopicConfig.CLEANUP_POLICY_CONFIG, TopicConfig.CLEANUP_POLICY_DELETE);

    /**
     * Finds the topic of a link, or creates it.
     *
     * @throws KafkaException when that is not possible now
     */
    static LinkTopic findOrCreate(LinkConfig link) {
        try (Admin admin = Admin.create(ClientSettings.ofAdmin(link))) {
            TopicDescription topic = describe(admin, link.topic());
            if (topic == null) {
                create(admin, link.topic());
                topic = describe(admin, link.topic());
            }
            if (topic == null) {
                throw new KafkaException("the topic was created, and is not there yet");
            }
            return new LinkTopic(
                    topic.name(),
                    topic.topicId().toString(),
                    topic.partitions().size(),
                    findMaxMessageBytes(admin, topic.name()));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KafkaException("interrupted", e);
        }
    }

    /** @throws IllegalArgumentException when no topic may have that name */
    static void checkName(LinkConfig link) {
        String name = link.topic();
        if (!NAME.matcher(name).matches() || NO_NAMES.contains(name)) {
            throw new IllegalArgumentException(
                    "cannot use the topic \"%s\" at %s: a topic of Kafka has 1 to 249 letters,"
                                    .formatted(name, link.broker())
                            + " digits, dots, hyphens and underscores");
        }
    }

    /** Returns the name of a partition's series of positions. */
    String series(int partition) {
        return id + "/" + partition;
    }

    private static TopicDescription describe(Admin admin, String name)
            throws InterruptedException {
        try {
            return admin.describeTopics(List.of(name)).topicNameValues().get(name).get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof UnknownTopicOrPartitionException) {
                return null;
            }
            throw thrown(e);
        }
    }

    private static void create(Admin admin, String name) throws InterruptedException {
        NewTopic topic = new NewTopic(name, Optional.of(1), Optional.empty()).configs(CONFIG);
        try {
            admin.createTopics(List.of(topic)).all().get();
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof TopicExistsException)) {
                throw thrown(e);
            }
        }
    }

    /** A broker that hides its settings says it of each record that is too large. */
    private static int findMaxMessageBytes(Admin admin, String name) throws InterruptedException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        try {
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            ConfigEntry most = config.get(TopicConfig.MAX_MESSAGE_BYTES_CONFIG);
            return most == null ? Integer.MAX_VALUE : Integer.parseInt(most.value());
        } catch (ExecutionException e) {
            return Integer.MAX_VALUE;
        }
    }

    private static KafkaException thrown(ExecutionException e) {
        return e.getCause() instanceof KafkaException known
                ? known
                : new KafkaException(e.getCause());
    }
}
