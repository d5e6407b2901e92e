package io.speck.mqtt.connection;

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
import io.speck.link.transport.Credentials;
import io.speck.link.transport.IncomingMessages;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.OutgoingMessage.Outcome;
import io.speck.link.transport.OutgoingMessage;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;

/**
 * MQTT 3.1.1, for brokers that refuse MQTT 5: no stamps, so repeats are not dropped and nothing is
 * known about holes; no reason codes, so messages without a reader are taken as delivered; no
 * Receive Maximum, so the broker's own limit holds.
 */
final class Mqtt3Connection extends MqttConnection {
    private static final int UNLIMITED = LinkConfig.MAX_WINDOW;

    private final Mqtt3RxClient client;
    private final MqttTopic topic;
    private final MqttTopic marks;
    private final MqttQos qos;
    private final Mqtt3Messages messages;
    private final UnicastProcessor<Mqtt3Publish> outgoing = UnicastProcessor.create();
    private final CompositeDisposable flows = new CompositeDisposable();
    private final int topicBytes;
    private boolean reader;

    Mqtt3Connection(LinkConfig link, EventLoops loops, ConnectionListener listener) {
        super(link, loops, listener);
        this.topic = MqttTopic.of(link.topic());
        this.marks = MqttTopic.of(Topics.MARKS + link.clientId());
        this.topicBytes = link.topic().getBytes(StandardCharsets.UTF_8).length;
        this.qos = link.delivery().isAcknowledged() ? MqttQos.AT_LEAST_ONCE : MqttQos.AT_MOST_ONCE;
        this.messages = new Mqtt3Messages(topicBytes, marks);
        Mqtt3ClientBuilder builder =
                ClientSettings.builder(link, loops)
                        .useMqttVersion3()
                        .addConnectedListener(context -> installGates())
                        .addDisconnectedListener(context -> finish(context.getCause()));
        this.client = authenticate(builder, link).buildRx();
    }

    /** Adds the user and the password of the broker's credentials, if they name any. */
    static Mqtt3ClientBuilder authenticate(Mqtt3ClientBuilder builder, LinkConfig link) {
        Credentials credentials = Credentials.forBroker(link.broker());
        if (credentials.user() == null) {
            return builder;
        }
        return builder.simpleAuth()
                .username(credentials.user())
                .password(ClientSettings.passwordOf(credentials))
                .applySimpleAuth();
    }

    @Override
    void open(boolean asReader) {
        reader = asReader;
        if (reader) {
            flows.add(
                    client.publishes(MqttGlobalPublishFilter.ALL)
                            .subscribe(this::receive, error -> {}));
        }
        Mqtt3Connect connect =
                Mqtt3Connect.builder()
                        .cleanSession(!reader)
                        .keepAlive(ClientSettings.KEEP_ALIVE_S)
                        .build();
        flows.add(client.connect(connect).subscribe(this::begin, error -> {}));
    }

    private void begin(Mqtt3ConnAck connAck) {
        if (!reader) {
            flows.add(client.publish(outgoing).subscribe(this::settle, error -> {}));
            reportReady(connAck.isSessionPresent(), UNLIMITED);
            return;
        }
        reportAdmitted(connAck.isSessionPresent());
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
                                        reportReady(connAck.isSessionPresent(), UNLIMITED);
                                    } else {
                                        leaveRefused("the broker refuses the subscription");
                                    }
                                },
                                problem -> leaveRefused("the broker refuses the subscription")));
    }

    /** The library throws only when all is refused. Without marks a reader goes on. */
    private static boolean grantsLink(Mqtt3SubAck subAck) {
        return !subAck.getReturnCodes().get(0).isError();
    }

    private void installGates() {
        installGates(client.getConfig().getConnectionConfig().orElseThrow(), reader);
    }

    private void finish(Throwable cause) {
        reportEnd(cause);
        flows.dispose();
    }

    @Override
    int transmit(OutgoingMessage message) {
        byte[] payload = message.message().payload();
        outgoing.onNext(Mqtt3Publish.builder().topic(topic).payload(payload).qos(qos).build());
        return PacketSize.ofPublish(
                topicBytes,
                qos != MqttQos.AT_MOST_ONCE,
                PacketSize.NO_PROPERTIES,
                payload.length);
    }

    private void settle(Mqtt3PublishResult result) {
        Outcome outcome = Outcome.DELIVERED;
        String problem = null;
        if (result.getError().isPresent()) {
            Throwable error = result.getError().get();
            boolean tooLarge = error instanceof MqttEncodeException;
            outcome = tooLarge ? Outcome.UNDELIVERABLE : Outcome.CUT_OFF;
            problem = error.toString();
        }
        settle(null, outcome, problem);
    }

    @Override
    CompletableFuture<String> publish(String otherTopic, byte[] payload, boolean retained) {
        return client.toAsync()
                .publish(
                        Mqtt3Publish.builder()
                                .topic(otherTopic)
                                .payload(payload)
                                .qos(MqttQos.AT_LEAST_ONCE)
                                .retain(retained)
                                .build())
                .thenApply(result -> null);
    }

    @Override
    public boolean isNumbered() {
        return false;
    }

    @Override
    public IncomingMessages messages() {
        return messages;
    }

    @Override
    void sendDisconnect() {
        flows.add(client.disconnect().subscribe(() -> {}, error -> {}));
    }
}
