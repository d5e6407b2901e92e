package io.speck.mqtt.bench;

import io.speck.link.protocol.Message;
import io.speck.link.transport.BrokerAddress;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.OutgoingMessage;
import io.speck.link.transport.Transports;
import io.speck.mqtt.connection.ConnectionListener;
import io.speck.mqtt.connection.MqttConnection;
import io.speck.mqtt.connection.Supervisor;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;

/**
 * The least that can stand between two topics with the same client library: no engine, no
 * checkpoints, no numbers. A message is acknowledged when the broker has taken its copy. It is the
 * floor against which the connector is measured.
 *
 * <pre>
 * java -cp speck-flink-connector.jar io.speck.mqtt.bench.Relay tcp://HOST:PORT IN OUT QOS WINDOW
 * </pre>
 *
 * Prints {@code relay ready} when it has subscribed, and runs until it is killed.
 */
public final class Relay implements ConnectionListener {
    private final Supervisor writer;
    private final Supervisor reader;

    private Relay(LinkConfig in, LinkConfig out) {
        writer = Supervisor.forWriter(out, this);
        reader = Supervisor.forReader(in, this);
    }

    public static void main(String[] args) throws InterruptedException {
        if (args.length != 5) {
            System.err.println("usage: Relay tcp://HOST:PORT IN-TOPIC OUT-TOPIC QOS WINDOW");
            System.exit(2);
        }
        BrokerAddress broker = Transports.parse(args[0]);
        Delivery delivery =
                Integer.parseInt(args[3]) == 0 ? Delivery.AT_MOST_ONCE : Delivery.AT_LEAST_ONCE;
        int window = Integer.parseInt(args[4]);
        String id = "relay-" + UUID.randomUUID();
        new Relay(
                        new LinkConfig(broker, args[1], id, delivery, window),
                        new LinkConfig(broker, args[2], id + "-out", delivery, window))
                .writer.start();
        new CountDownLatch(1).await();
    }

    // ---- on the two connections' network threads

    @Override
    public void onReady(MqttConnection connection, boolean sessionPresent, int sendMaximum) {
        if (connection == writer.current()) {
            reader.start();
        } else {
            System.out.println("relay ready");
        }
    }

    @Override
    public void onMessages(MqttConnection connection) {
        Object message;
        while ((message = connection.poll()) != null) {
            byte[] payload = connection.messages().payloadOf(message);
            writer.current().send(new OutgoingMessage(null, 0, Message.of(payload)));
        }
        connection.resumeIfDrained();
    }

    @Override
    public void onOutcomes(MqttConnection connection) {
        reader.current().acknowledgeUpTo(connection.settledCount());
    }

    @Override
    public void onEnd(MqttConnection connection, Throwable cause) {
        System.err.println("cannot go on: " + cause);
        System.exit(1);
    }
}
