package io.speck.mqtt;

import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.datatypes.MqttTopic;
import com.hivemq.client.mqtt.mqtt5.Mqtt5RxClient;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5Connect;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import io.reactivex.processors.UnicastProcessor;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import org.jctools.queues.atomic.SpscUnboundedAtomicArrayQueue;

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
                MqttTopic.of(args[2]),
                MqttQos.fromCode(Integer.parseInt(args[3])),
                Integer.parseInt(args[4]));
        new CountDownLatch(1).await();
    }

    private static void relay(BrokerAddress at, String in, MqttTopic out, MqttQos qos, int window) {
        Mqtt5RxClient reader = client(at);
        Mqtt5RxClient writer = client(at);
        connect(writer, window);
        boolean manual = qos != MqttQos.AT_MOST_ONCE;
        UnicastProcessor<Mqtt5Publish> copies = UnicastProcessor.create();
        SpscUnboundedAtomicArrayQueue<Mqtt5Publish> originals =
                new SpscUnboundedAtomicArrayQueue<>(1024);
        reader.publishes(MqttGlobalPublishFilter.ALL, manual)
                .subscribe(
                        message -> {
                            if (manual) {
                                originals.offer(message);
                            }
                            copies.onNext(
                                    Mqtt5Publish.builder()
                                            .topic(out)
                                            .payload(message.getPayloadAsBytes())
                                            .qos(qos)
                                            .build());
                        });
        writer.publish(copies)
                .subscribe(
                        result -> {
                            if (manual) {
                                originals.poll().acknowledge();
                            }
                        });
        connect(reader, window);
        reader.toBlocking().subscribeWith().topicFilter(in).qos(qos).send();
        System.out.println("relay ready");
    }

    private static Mqtt5RxClient client(BrokerAddress broker) {
        return MqttClient.builder()
                .useMqttVersion5()
                .identifier("relay-" + UUID.randomUUID())
                .serverHost(broker.host())
                .serverPort(broker.port())
                .executorConfig()
                .applicationScheduler(DirectScheduler.INSTANCE)
                .applyExecutorConfig()
                .buildRx();
    }

    private static void connect(Mqtt5RxClient client, int window) {
        client.toBlocking()
                .connect(
                        Mqtt5Connect.builder()
                                .restrictions()
                                .receiveMaximum(window)
                                .applyRestrictions()
                                .build());
    }
}
