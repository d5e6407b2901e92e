package io.speck.mqtt.connection;

import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.datatypes.MqttTopic;
import com.hivemq.client.mqtt.datatypes.MqttUtf8String;
import com.hivemq.client.mqtt.exceptions.MqttEncodeException;
import com.hivemq.client.mqtt.mqtt5.Mqtt5ClientBuilder;
import com.hivemq.client.mqtt.mqtt5.Mqtt5RxClient;
import com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserProperties;
import com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserProperty;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5PubAckException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5SubAckException;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5Connect;
import com.hivemq.client.mqtt.mqtt5.message.connect.connack.Mqtt5ConnAck;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import com.hivemq.client.mqtt.mqtt5.message.publish.puback.Mqtt5PubAckReasonCode;
import com.hivemq.client.mqtt.mqtt5.message.subscribe.Mqtt5RetainHandling;
import com.hivemq.client.mqtt.mqtt5.message.subscribe.Mqtt5Subscribe;
import com.hivemq.client.mqtt.mqtt5.message.subscribe.suback.Mqtt5SubAck;
import io.reactivex.disposables.CompositeDisposable;
import io.reactivex.processors.UnicastProcessor;
import io.speck.link.protocol.Message;
import io.speck.link.transport.Credentials;
import io.speck.link.transport.IncomingMessages;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.OutgoingMessage.Outcome;
import io.speck.link.transport.OutgoingMessage;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** MQTT 5, over HiveMQ's client. */
final class Mqtt5Connection extends MqttConnection {
    // type, length, topic's length, packet id, properties' length, topic alias
    private static final int PUBLISH_HEADERS = 1 + 4 + 2 + 2 + 4 + 3;
    private static final int WRITER_RECEIVE_MAXIMUM = 16;
    private static final int PACKET_TOO_LARGE = 0x95; // a code of DISCONNECT, not of PUBACK

    private final Mqtt5RxClient client;
    private final MqttTopic topic;
    private final MqttTopic marks;
    private final MqttQos qos;
    private final Mqtt5Messages messages;
    private final UnicastProcessor<Mqtt5Publish> outgoing = UnicastProcessor.create();
    private final CompositeDisposable flows = new CompositeDisposable();
    private final int topicBytes;
    private boolean reader;

    /** Known when the connection is ready: the library then sends the topic only once. */
    private volatile boolean usesAlias;

    private boolean topicSent; // of the sending thread

    Mqtt5Connection(LinkConfig link, EventLoops loops, ConnectionListener listener) {
        super(link, loops, listener);
        this.topic = MqttTopic.of(link.topic());
        this.marks = MqttTopic.of(Topics.MARKS + link.clientId());
        this.topicBytes = link.topic().getBytes(StandardCharsets.UTF_8).length;
        this.qos = link.delivery().isAcknowledged() ? MqttQos.AT_LEAST_ONCE : MqttQos.AT_MOST_ONCE;
        this.messages = new Mqtt5Messages(topicBytes, marks);
        Mqtt5ClientBuilder builder =
                ClientSettings.builder(link, loops)
                        .useMqttVersion5()
                        .addConnectedListener(context -> installGates())
                        .addDisconnectedListener(context -> finish(context.getCause()));
        Credentials credentials = Credentials.forBroker(link.broker());
        if (credentials.user() != null) {
            builder =
                    builder.simpleAuth()
                            .username(credentials.user())
                            .password(ClientSettings.passwordOf(credentials))
                            .applySimpleAuth();
        }
        this.client = builder.buildRx();
    }

    @Override
    void open(boolean asReader) {
        reader = asReader;
        // before connecting: a session that is present begins to send at once
        flows.add(
                client.publishes(MqttGlobalPublishFilter.ALL)
                        .subscribe(reader ? this::receive : this::announce, error -> {}));
        Mqtt5Connect connect =
                Mqtt5Connect.builder()
                        .cleanStart(!reader)
                        .sessionExpiryInterval(reader ? ClientSettings.SESSION_EXPIRY_S : 0)
                        .keepAlive(ClientSettings.KEEP_ALIVE_S)
                        .restrictions()
                        .receiveMaximum(reader ? link.window() : WRITER_RECEIVE_MAXIMUM)
                        .applyRestrictions()
                        .build();
        flows.add(client.connect(connect).subscribe(this::begin, error -> {}));
    }

    private void begin(Mqtt5ConnAck connAck) {
        if (reader) {
            beginReading(connAck);
        } else {
            beginWriting(connAck);
        }
    }

    private void beginWriting(Mqtt5ConnAck connAck) {
        int sendMaximum = connAck.getRestrictions().getReceiveMaximum();
        usesAlias = connAck.getRestrictions().getTopicAliasMaximum() > 0;
        int overhead = PUBLISH_HEADERS + topicBytes; // besides payload and stamp, at most
        limitPayload(connAck.getRestrictions().getMaximumPacketSize() - overhead);
        flows.add(client.publish(outgoing).subscribe(this::settle, error -> {}));
        subscribeToAnnouncements(() -> reportReady(connAck.isSessionPresent(), sendMaximum));
    }

    private void beginReading(Mqtt5ConnAck connAck) {
        messages.expectSubscriptionIdentifiers(
                connAck.getRestrictions().areSubscriptionIdentifiersAvailable());
        reportAdmitted(connAck.isSessionPresent());
        Mqtt5Subscribe subscribe =
                Mqtt5Subscribe.builder()
                        .addSubscription()
                        .topicFilter(link.topic())
                        .qos(qos)
                        .retainHandling(Mqtt5RetainHandling.DO_NOT_SEND)
                        .applySubscription()
                        .addSubscription()
                        .topicFilter(marks.filter())
                        .qos(MqttQos.AT_LEAST_ONCE)
                        .retainHandling(Mqtt5RetainHandling.DO_NOT_SEND)
                        .applySubscription()
                        .build();
        flows.add(
                client.subscribe(subscribe)
                        .subscribe(
                                subAck -> {
                                    if (grantsLink(subAck)) {
                                        reportReady(
                                                connAck.isSessionPresent(),
                                                connAck.getRestrictions().getReceiveMaximum());
                                    } else {
                                        leaveRefused(describeRefused(subAck));
                                    }
                                },
                                problem -> {
                                    if (problem instanceof Mqtt5SubAckException refusal) {
                                        leaveRefused(describeRefused(refusal.getMqttMessage()));
                                    } else {
                                        disconnect();
                                    }
                                }));
    }

    private static String describeRefused(Mqtt5SubAck subAck) {
        return "the broker refuses the subscription: " + subAck.getReasonCodes().get(0);
    }

    /** The library throws only when all is refused. Without marks a reader goes on. */
    private static boolean grantsLink(Mqtt5SubAck subAck) {
        return !subAck.getReasonCodes().get(0).isError();
    }

    /**
     * A sink wants to hear what is announced about its link; where it may not, it goes on without.
     * What is retained may come after the acknowledgement of the subscription that asks for it, but
     * before that of the next.
     */
    private void subscribeToAnnouncements(Runnable next) {
        Mqtt5Subscribe first =
                Mqtt5Subscribe.builder()
                        .addSubscription()
                        .topicFilter(Topics.READERS + link.topic())
                        .qos(MqttQos.AT_LEAST_ONCE)
                        .applySubscription()
                        .addSubscription()
                        .topicFilter(Topics.SENT + link.clientId())
                        .qos(MqttQos.AT_MOST_ONCE)
                        .applySubscription()
                        .addSubscription()
                        .topicFilter(Topics.ofSession(link.topic(), "+"))
                        .qos(MqttQos.AT_LEAST_ONCE)
                        .applySubscription()
                        .build();
        Mqtt5Subscribe second =
                Mqtt5Subscribe.builder()
                        .addSubscription()
                        .topicFilter(Topics.SENT + link.clientId())
                        .qos(MqttQos.AT_MOST_ONCE)
                        .retainHandling(Mqtt5RetainHandling.DO_NOT_SEND)
                        .applySubscription()
                        .build();
        subscribe(first, () -> subscribe(second, next));
    }

    private void subscribe(Mqtt5Subscribe packet, Runnable next) {
        flows.add(
                client.subscribe(packet)
                        .subscribe(
                                subAck -> next.run(),
                                problem -> {
                                    if (problem instanceof Mqtt5SubAckException) {
                                        next.run();
                                    } else {
                                        disconnect();
                                    }
                                }));
    }

    private void announce(Mqtt5Publish message) {
        reportAnnouncement(message.getTopic().toString(), message.getPayloadAsBytes());
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
        int properties = usesAlias ? PacketSize.ALIAS : 0;
        Message content = message.message();
        var builder = Mqtt5Publish.builder().topic(topic).payload(content.payload()).qos(qos);
        if (message.epoch() != null) {
            MqttUtf8String stamp = MqttUtf8String.of(message.stamp());
            builder.userProperties(
                    Mqtt5UserProperties.of(Mqtt5UserProperty.of(Mqtt5Messages.STAMP, stamp)));
            properties += message.epoch().stampBytes(message.number());
        }
        if (!content.isPlain()) {
            builder.contentType(
                    content.format() == Message.Format.ZSTD_BATCH
                            ? Mqtt5Messages.ZSTD_BATCH
                            : Mqtt5Messages.BATCH);
            properties += content.propertyBytes();
        }
        Mqtt5Publish publish = builder.build();
        message.setPacket(publish);
        outgoing.onNext(publish);
        int topicSize = usesAlias && topicSent ? 0 : topicBytes;
        topicSent = true;
        return PacketSize.ofPublish(
                topicSize, qos != MqttQos.AT_MOST_ONCE, properties, message.payloadBytes());
    }

    private void settle(Mqtt5PublishResult result) {
        Outcome outcome = Outcome.DELIVERED;
        String problem = null;
        if (result instanceof Mqtt5PublishResult.Mqtt5Qos1Result acknowledged) {
            Mqtt5PubAckReasonCode code = acknowledged.getPubAck().getReasonCode();
            int unknown = HiveMqInternals.unknownCodeOf(acknowledged.getPubAck());
            if (unknown == PACKET_TOO_LARGE) {
                outcome = Outcome.TOO_LARGE;
                problem = "PACKET_TOO_LARGE";
            } else if (code != Mqtt5PubAckReasonCode.SUCCESS) {
                outcome = outcomeOf(code);
                problem = unknown < 0 ? code.toString() : "code 0x" + Integer.toHexString(unknown);
            }
        } else if (result.getError().isPresent()) {
            Throwable error = result.getError().get();
            boolean tooLarge = error instanceof MqttEncodeException;
            outcome = tooLarge ? Outcome.UNDELIVERABLE : Outcome.CUT_OFF;
            settleUnsent(result.getPublish(), outcome, error.toString());
            return;
        }
        settle(result.getPublish(), outcome, problem);
    }

    private static Outcome outcomeOf(Mqtt5PubAckReasonCode code) {
        return switch (code) {
            case SUCCESS -> Outcome.DELIVERED;
            case NO_MATCHING_SUBSCRIBERS -> Outcome.UNREAD;
            case PAYLOAD_FORMAT_INVALID -> Outcome.UNDELIVERABLE;
            default -> Outcome.REFUSED;
        };
    }

    @Override
    CompletableFuture<String> publish(String otherTopic, byte[] payload, boolean retained) {
        return client.toAsync()
                .publish(
                        Mqtt5Publish.builder()
                                .topic(otherTopic)
                                .payload(payload)
                                .qos(MqttQos.AT_LEAST_ONCE)
                                .retain(retained)
                                .build())
                .handle(Mqtt5Connection::refusalOf);
    }

    /** Any other problem than a refusal is the end of the connection. */
    private static String refusalOf(Mqtt5PublishResult result, Throwable problem) {
        Throwable cause = problem instanceof CompletionException ? problem.getCause() : problem;
        if (cause == null || cause instanceof Mqtt5PubAckException) {
            return cause == null ? null : cause.toString();
        }
        throw new CompletionException(cause);
    }

    @Override
    public boolean isNumbered() {
        return true;
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
