package io.speck.link;

import io.speck.link.protocol.Batching;
import io.speck.link.protocol.HandOver;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.Until;
import io.speck.link.sink.SinkSettings;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * The arguments by which speck's control plane joins a job to its links; {@code SpeckJob} lists
 * them.
 *
 * @param attempt of the incarnation; newer ones have higher numbers
 * @param port the links to which the sink writes; the first is that of the single arguments
 * @param handOver what the previous reader of the source link has taken
 * @param until the numbers up to which the source link is read
 */
public record JobContract(
        String name,
        LinkConfig source,
        List<LinkConfig> port,
        HandOver handOver,
        Until until,
        long attempt,
        SinkSettings settings) {
    /** Their names: a job may have others of its own. */
    public static final Set<String> ARGUMENTS =
            Set.of(
                    "job-name",
                    "client-id",
                    "epoch",
                    "sink-client-id",
                    "port",
                    "source-broker",
                    "source-topic",
                    "sink-broker",
                    "sink-topic",
                    "delivery",
                    "sink-readers",
                    "receive-maximum",
                    "sink-window",
                    "max-record-bytes",
                    "resend-window",
                    "resend-bytes",
                    "resend-state-bytes",
                    "batch-records",
                    "linger-ms",
                    "compression",
                    "taken",
                    "until");
    private static final int RECEIVE_MAXIMUM = 10_000;
    private static final int SINK_WINDOW = 2000;
    private static final int MAX_RECORD_BYTES = 1_048_576;

    /** @throws IllegalArgumentException naming the argument that is missing or wrong */
    public static JobContract parse(Parameters parameters) {
        String name = parameters.get("job-name");
        String clientId = parameters.get("client-id");
        Delivery delivery = Delivery.parse(parameters.get("delivery", "at_least_once"));
        return new JobContract(
                name,
                new LinkConfig(
                        Transports.parse(parameters.get("source-broker")),
                        parameters.get("source-topic"),
                        clientId,
                        delivery,
                        parameters.getInt("receive-maximum", RECEIVE_MAXIMUM)),
                parsePort(parameters, clientId, delivery),
                HandOver.parse(parameters.get("taken", "")),
                Until.parse(parameters.get("until", "")),
                parameters.getLong("epoch", 0),
                new SinkSettings(
                        parseReaders(parameters.get("sink-readers", "none")),
                        parameters.getInt("max-record-bytes", MAX_RECORD_BYTES),
                        parameters.getDuration("resend-window", SinkSettings.RESEND_WINDOW),
                        parameters.getLong("resend-bytes", 0),
                        parameters.getLong("resend-state-bytes", SinkSettings.RESEND_STATE_BYTES),
                        parseBatching(parameters)));
    }

    private static List<LinkConfig> parsePort(
            Parameters parameters, String clientId, Delivery delivery) {
        LinkConfig first =
                new LinkConfig(
                        Transports.parse(parameters.get("sink-broker")),
                        parameters.get("sink-topic"),
                        parameters.get("sink-client-id", clientId + "-out"),
                        delivery,
                        parameters.getInt("sink-window", SINK_WINDOW));
        List<LinkConfig> port = new ArrayList<>();
        for (String entry : parameters.get("port", "").split(";")) {
            String[] parts = entry.split("/", -1);
            if (parts.length == 2 && !parts[0].isEmpty() && !parts[1].isEmpty()) {
                String topic = URLDecoder.decode(parts[0], StandardCharsets.UTF_8);
                port.add(
                        new LinkConfig(
                                first.broker(), topic, parts[1], delivery, first.window()));
            } else if (!entry.isEmpty()) {
                throw refusePort(entry, "it must be <topic>/<client id>");
            }
        }
        if (port.isEmpty()) {
            return List.of(first);
        }
        if (!port.get(0).equals(first)) {
            throw refusePort(port.get(0).topic(), "the first link must be that of --sink-topic");
        }
        return List.copyOf(port);
    }

    private static IllegalArgumentException refusePort(String entry, String reason) {
        return new IllegalArgumentException("cannot use --port \"%s\": %s".formatted(entry, reason));
    }

    /** Returns the first link of the port: of most sinks the only one. */
    public LinkConfig sink() {
        return port.get(0);
    }

    private static boolean parseReaders(String value) {
        return switch (value) {
            case "some" -> true;
            case "none" -> false;
            default ->
                    throw new IllegalArgumentException(
                            "cannot use --sink-readers \"" + value + "\": it must be none or some");
        };
    }

    public static Batching parseBatching(Parameters parameters) {
        return new Batching(
                getBounded(parameters, "batch-records", 1, Message.MAX_RECORDS),
                getBounded(parameters, "linger-ms", 0, Batching.MAX_LINGER_MS),
                switch (parameters.get("compression", "none")) {
                    case "none" -> false;
                    case "zstd" -> true;
                    default ->
                            throw new IllegalArgumentException(
                                    "cannot use --compression \""
                                            + parameters.get("compression")
                                            + "\": it must be none or zstd");
                });
    }

    private static int getBounded(Parameters parameters, String name, int least, int most) {
        int value = parameters.getInt(name, least);
        if (value < least || value > most) {
            throw new IllegalArgumentException(
                    "cannot use --%s %d: it must be %d to %d".formatted(name, value, least, most));
        }
        return value;
    }
}
