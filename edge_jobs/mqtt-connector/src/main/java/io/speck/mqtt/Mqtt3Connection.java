package io.speck.mqtt;

import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.datatypes.MqttTopic;
import com.hivemq.client.mqtt.exceptions.MqttEncodeException;
import com.hivemq.client.mqtt.mqtt3.Mqtt3ClientBuilder;
import com.hivemq.client.mqtt.mqtt3.Mqtt3RxClient;
import com.hivemq.client.mqtt.mqtt3.message.connect.Mqtt3Connect;
import com.hivemq.client.mqtt.mqtt3.message.connect.connack.Mqtt3ConnAck;
import com.hivemq.client.mqtt.mqtt3.message.publish.Mqtt3Publish;
import com.hivemq.client.mqtt.mqtt3.message.publish.Mqtt3PublishResult;
import com.hivemq.client.mqtt.mqtt3.message.subscribe.Mqtt3Subscribe;
import com.hivemq.client.mqtt.mqtt3.message.subscribe.suback.Mqtt3SubAck;
import io.reactivex.disposables.CompositeDisposable;
import io.reactivex.processors.UnicastProcessor;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;

/**
 * MQTT 3.1.1, for brokers that refuse MQTT 5: no stamps, so repeats are not dropped and nothing is
 * known about holes; no reason codes, so records without a reader are taken as delivered; no
 * Receive Maximum, so the broker's own limit holds.
 */
final class Mqtt3Connection extends MqttConnection {
    private static final int UNLIMITED = LinkConfig.MOST_WINDOW;

    private final Mqtt3RxClient client;
    private final MqttTopic topic;
    private final MqttTopic marks;
    private final MqttQos qos;
    private final UnicastProcessor<Mqtt3Publish> outgoing = UnicastProcessor.create();
    private final CompositeDisposable flows = new CompositeDisposable();
    private final int topicBytes;
    private boolean reader;

    Mqtt3Connection(LinkConfig link, EventLoops loops, Events events) {
        super(link, loops, events);
        this.topic = MqttTopic.of(link.topic());
        this.marks = MqttTopic.of(MARKS + link.clientId());
        this.topicBytes = link.topic().getBytes(StandardCharsets.UTF_8).length;
        this.qos = link.delivery().acknowledged() ? MqttQos.AT_LEAST_ONCE : MqttQos.AT_MOST_ONCE;
        Mqtt3ClientBuilder builder =
                ClientSettings.common(link, loops)
                        .useMqttVersion3()
                        .addConnectedListener(context -> connectedAs())
                        .addDisconnectedListener(context -> finish(context.getCause()));
        Credentials credentials = Credentials.forBroker(link.broker());
        if (credentials.user() != null) {
            builder =
                    builder.simpleAuth()
                            .username(credentials.user())
                            .password(ClientSettings.password(credentials))
                            .applySimpleAuth();
        }
        this.client = builder.buildRx();
    }

    @Override
    void open(boolean asReader) {
        reader = asReader;
        if (reader) {
            flows.add(
                    client.publishes(MqttGlobalPublishFilter.ALL)
                            .subscribe(this::onMessage, error -> {}));
        }
        Mqtt3Connect connect =
                Mqtt3Connect.builder()
                        .cleanSession(!reader)
                        .keepAlive(ClientSettings.KEEP_ALIVE_S)
                        .build();
        flows.add(client.connect(connect).subscribe(this::connected, error -> {}));
    }

    private void connected(Mqtt3ConnAck connAck) {
        if (!reader) {
            flows.add(client.publish(outgoing).subscribe(this::result, error -> {}));
            onReady(connAck.isSessionPresent(), UNLIMITED);
            return;
        }
        onAdmitted(connAck.isSessionPresent());
        Mqtt3Subscribe subscribe =
                Mqtt3Subscribe.builder()
                        .addSubscription()
                        .topicFilter(link.topic())
                        .qos(qos)
                        .applySubscription()
                        .addSubscription()
                        .topicFilter(marks.filter())
                        .qos(MqttQos.AT_LEAST_ONCE)
                        .applySubscription()
                        .build();
        flows.add(
                client.subscribe(subscribe)
                        .subscribe(
                                subAck -> {
                                    if (grantsLink(subAck)) {
                                        onReady(connAck.isSessionPresent(), UNLIMITED);
                                    } else {
                                        disconnect();
                                    }
                                },
                                refused -> disconnect()));
    }

    /** The library throws when all is refused only. Without marks a reader goes on. */
    private static boolean grantsLink(Mqtt3SubAck subAck) {
        return !subAck.getReturnCodes().get(0).isError();
    }

    private void connectedAs() {
        takeOver(client.getConfig().getConnectionConfig().orElseThrow(), reader);
    }

    private void finish(Throwable cause) {
        onEnded(cause);
        flows.dispose();
    }

    @Override
    int transmit(OutRecord record) {
        Mqtt3Publish publish =
                Mqtt3Publish.builder().topic(topic).payload(record.payload).qos(qos).build();
        outgoing.onNext(publish);
        return PacketSize.publish(
                topicBytes, qos != MqttQos.AT_MOST_ONCE, -1, record.payload.length);
    }

    private void result(Mqtt3PublishResult result) {
        int outcome = OutRecord.DELIVERED;
        String problem = null;
        if (result.getError().isPresent()) {
            Throwable error = result.getError().get();
            boolean bad = error instanceof MqttEncodeException;
            outcome = bad ? OutRecord.UNDELIVERABLE : OutRecord.CUT_OFF;
            problem = error.toString();
        }
        onResult(null, outcome, problem);
    }

    @Override
    CompletableFuture<?> publish(String otherTopic, byte[] payload, boolean retained) {
        return client.toAsync()
                .publish(
                        Mqtt3Publish.builder()
                                .topic(otherTopic)
                                .payload(payload)
                                .qos(MqttQos.AT_LEAST_ONCE)
                                .retain(retained)
                                .build());
    }

    @Override
    boolean isNumbered() {
        return false;
    }

    @Override
    byte[] payloadOf(Object message) {
        return ((Mqtt3Publish) message).getPayloadAsBytes();
    }

    @Override
    int sizeOf(Object message) {
        return ((Mqtt3Publish) message).getPayload().map(ByteBuffer::remaining).orElse(0);
    }

    @Override
    int packetSizeOf(Object message) {
        return PacketSize.publish(topicBytes, isAcknowledged(message), -1, sizeOf(message));
    }

    @Override
    String stampOf(Object message) {
        return null;
    }

    @Override
    Parcel.Form formOf(Object message) {
        return Parcel.Form.PLAIN; // there is nothing to tell it by
    }

    @Override
    boolean isMark(Object message) {
        return ((Mqtt3Publish) message).getTopic().equals(marks);
    }

    @Override
    boolean isAcknowledged(Object message) {
        return ((Mqtt3Publish) message).getQos() != MqttQos.AT_MOST_ONCE;
    }

    @Override
    void sendDisconnect() {
        flows.add(client.disconnect().subscribe(() -> {}, error -> {}));
    }
}
