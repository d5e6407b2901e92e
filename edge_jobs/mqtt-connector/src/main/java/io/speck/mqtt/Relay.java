package io.speck.mqtt;

import java.util.UUID;
import java.util.concurrent.CountDownLatch;

/**
 * The least that can stand between two topics with the same client library: no engine, no
 * checkpoints, no numbers. A message is acknowledged when the broker has taken its copy. It is the
 * floor that the connector is measured against.
 *
 * <pre>java -cp speck-mqtt-connector.jar io.speck.mqtt.Relay tcp://HOST:PORT IN OUT QOS WINDOW</pre>
 *
 * Prints {@code relay ready} when it has subscribed, and runs until it is killed.
 */
public final class Relay {
    private Relay() {}

    public static void main(String[] args) throws InterruptedException {
        if (args.length != 5) {
            System.err.println("usage: Relay tcp://HOST:PORT IN-TOPIC OUT-TOPIC QOS WINDOW");
            System.exit(2);
        }
        relay(
                BrokerAddress.parse(args[0]),
                args[1],
                args[2],
                Integer.parseInt(args[3]),
                Integer.parseInt(args[4]));
        new CountDownLatch(1).await();
    }

    private static void relay(BrokerAddress at, String in, String out, int qos, int window) {
        Delivery delivery = qos == 0 ? Delivery.AT_MOST_ONCE : Delivery.AT_LEAST_ONCE;
        String id = "relay-" + UUID.randomUUID();
        EventLoops loops = EventLoops.lease();
        Copier copier = new Copier();
        copier.writer =
                new Mqtt5Connection(
                        new LinkConfig(at, out, id + "-out", delivery, window), loops, copier);
        copier.reader =
                new Mqtt5Connection(
                        new LinkConfig(at, in, id, delivery, window), loops, copier);
        copier.writer.open(false);
    }

    /** All on the two connections' network threads. */
    private static final class Copier implements MqttConnection.Events {
        private MqttConnection reader;
        private MqttConnection writer;

        @Override
        public void ready(MqttConnection connection, boolean sessionPresent, int sendMaximum) {
            if (connection == writer) {
                reader.open(true);
            } else {
                System.out.println("relay ready");
            }
        }

        @Override
        public void arrived(MqttConnection connection) {
            Object message;
            while ((message = reader.poll()) != null) {
                writer.send(new OutRecord(null, 0, reader.payloadOf(message)));
            }
            reader.resumeIfDrained();
        }

        @Override
        public void settled(MqttConnection connection) {
            reader.acknowledgeUpTo(writer.settled);
        }

        @Override
        public void ended(MqttConnection connection, Throwable cause) {
            System.err.println("cannot go on: " + cause);
            System.exit(1);
        }
    }
}
