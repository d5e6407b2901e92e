package io.speck.mqtt;

import com.hivemq.client.internal.mqtt.message.publish.MqttPublish;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.datatypes.MqttTopic;
import com.hivemq.client.mqtt.datatypes.MqttUtf8String;
import com.hivemq.client.mqtt.exceptions.MqttEncodeException;
import com.hivemq.client.mqtt.mqtt5.Mqtt5ClientBuilder;
import com.hivemq.client.mqtt.mqtt5.Mqtt5RxClient;
import com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserProperties;
import com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserProperty;
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
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** MQTT 5, over HiveMQ's client. */
final class Mqtt5Connection extends MqttConnection {
    private static final MqttUtf8String STAMP = MqttUtf8String.of(Stamp.PROPERTY);
    private static final MqttUtf8String FRAMED =
            MqttUtf8String.of(Parcel.Form.FRAMED.contentType);
    private static final MqttUtf8String ZSTD = MqttUtf8String.of(Parcel.Form.ZSTD.contentType);
    // type, length, topic's length, packet id, properties' length, topic alias
    private static final int PUBLISH_HEADERS = 1 + 4 + 2 + 2 + 4 + 3;

    private final Mqtt5RxClient client;
    private final MqttTopic topic;
    private final MqttTopic marks;
    private final MqttQos qos;
    private final UnicastProcessor<Mqtt5Publish> outgoing = UnicastProcessor.create();
    private final CompositeDisposable flows = new CompositeDisposable();
    private final int topicBytes;
    private boolean reader;

    // known when the connection is ready
    private volatile boolean aliased; // the topic is sent once, see MqttTopicAliasAutoMapping
    private volatile int identifier; // bytes of the subscription's, which comes with each message
    private boolean topicSent; // of the sending thread

    Mqtt5Connection(LinkConfig link, EventLoops loops, Events events) {
        super(link, loops, events);
        this.topic = MqttTopic.of(link.topic());
        this.marks = MqttTopic.of(MARKS + link.clientId());
        this.topicBytes = link.topic().getBytes(StandardCharsets.UTF_8).length;
        this.qos = link.delivery().acknowledged() ? MqttQos.AT_LEAST_ONCE : MqttQos.AT_MOST_ONCE;
        Mqtt5ClientBuilder builder =
                ClientSettings.common(link, loops)
                        .useMqttVersion5()
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
        // before connecting: a session that is present begins to send at once
        flows.add(
                client.publishes(MqttGlobalPublishFilter.ALL)
                        .subscribe(reader ? this::onMessage : this::onSaid, error -> {}));
        flows.add(client.connect(connect()).subscribe(this::connected, error -> {}));
    }

    private Mqtt5Connect connect() {
        return Mqtt5Connect.builder()
                .cleanStart(!reader)
                .sessionExpiryInterval(reader ? ClientSettings.SESSION_EXPIRY_S : 0)
                .keepAlive(ClientSettings.KEEP_ALIVE_S)
                .restrictions()
                .receiveMaximum(reader ? link.window() : 16)
                .applyRestrictions()
                .build();
    }

    private void connected(Mqtt5ConnAck connAck) {
        int sendMaximum = connAck.getRestrictions().getReceiveMaximum();
        if (!reader) {
            aliased = connAck.getRestrictions().getTopicAliasMaximum() > 0;
            onMostPayload(connAck.getRestrictions().getMaximumPacketSize() - overhead());
            flows.add(client.publish(outgoing).subscribe(this::result, error -> {}));
            listen(() -> onReady(connAck.isSessionPresent(), sendMaximum));
            return;
        }
        identifier = connAck.getRestrictions().areSubscriptionIdentifiersAvailable() ? 2 : 0;
        onAdmitted(connAck.isSessionPresent());
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
                                        onReady(connAck.isSessionPresent(), sendMaximum);
                                    } else {
                                        disconnect();
                                    }
                                },
                                refused -> disconnect()));
    }

    /** The library throws when all is refused only. Without marks a reader goes on. */
    private static boolean grantsLink(Mqtt5SubAck subAck) {
        return !subAck.getReasonCodes().get(0).isError();
    }

    /** The most that a record's packet has besides payload and stamp. */
    private int overhead() {
        return PUBLISH_HEADERS + topicBytes;
    }

    /**
     * A sink wants to know what is said about its link; where it may not, it goes on without. What
     * is retained may come after the acknowledgement of the subscription that asks for it, but
     * before that of the next.
     */
    private void listen(Runnable then) {
        Mqtt5Subscribe subscribe =
                Mqtt5Subscribe.builder()
                        .addSubscription()
                        .topicFilter(READERS + link.topic())
                        .qos(MqttQos.AT_LEAST_ONCE)
                        .applySubscription()
                        .addSubscription()
                        .topicFilter(SENT + link.clientId())
                        .qos(MqttQos.AT_MOST_ONCE)
                        .applySubscription()
                        .build();
        Mqtt5Subscribe again =
                Mqtt5Subscribe.builder()
                        .addSubscription()
                        .topicFilter(SENT + link.clientId())
                        .qos(MqttQos.AT_MOST_ONCE)
                        .retainHandling(Mqtt5RetainHandling.DO_NOT_SEND)
                        .applySubscription()
                        .build();
        subscribe(subscribe, () -> subscribe(again, then));
    }

    private void subscribe(Mqtt5Subscribe to, Runnable then) {
        flows.add(
                client.subscribe(to)
                        .subscribe(
                                granted -> then.run(),
                                problem -> {
                                    if (problem instanceof Mqtt5SubAckException) {
                                        then.run();
                                    } else {
                                        disconnect();
                                    }
                                }));
    }

    private void onSaid(Mqtt5Publish message) {
        onSaid(message.getTopic().toString(), message.getPayloadAsBytes());
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
        int properties = aliased ? PacketSize.ALIAS : 0;
        var builder = Mqtt5Publish.builder().topic(topic).payload(record.payload).qos(qos);
        if (record.series != null) {
            MqttUtf8String stamp = MqttUtf8String.of(record.stamp());
            builder.userProperties(Mqtt5UserProperties.of(Mqtt5UserProperty.of(STAMP, stamp)));
            properties += record.series.stampBytes(record.number);
        }
        if (!record.parcel.isPlain()) {
            builder.contentType(record.parcel.form() == Parcel.Form.ZSTD ? ZSTD : FRAMED);
            properties += record.parcel.propertyBytes();
        }
        Mqtt5Publish publish = builder.build();
        record.sent = publish;
        outgoing.onNext(publish);
        int topicSize = aliased && topicSent ? 0 : topicBytes;
        topicSent = true;
        return PacketSize.publish(
                topicSize, qos != MqttQos.AT_MOST_ONCE, properties, record.payload.length);
    }

    private void result(Mqtt5PublishResult result) {
        int outcome = OutRecord.DELIVERED;
        String problem = null;
        if (result instanceof Mqtt5PublishResult.Mqtt5Qos1Result acknowledged) {
            Mqtt5PubAckReasonCode code = acknowledged.getPubAck().getReasonCode();
            if (code != Mqtt5PubAckReasonCode.SUCCESS) {
                outcome = outcomeOf(code);
                problem = code.toString();
            }
        } else if (result.getError().isPresent()) {
            Throwable error = result.getError().get();
            boolean bad = error instanceof MqttEncodeException; // larger than the broker allows
            outcome = bad ? OutRecord.UNDELIVERABLE : OutRecord.CUT_OFF;
            onFailure(result.getPublish(), outcome, error.toString());
            return;
        }
        onResult(result.getPublish(), outcome, problem);
    }

    private static int outcomeOf(Mqtt5PubAckReasonCode code) {
        return switch (code) {
            case SUCCESS -> OutRecord.DELIVERED;
            case NO_MATCHING_SUBSCRIBERS -> OutRecord.UNREAD;
            case PAYLOAD_FORMAT_INVALID -> OutRecord.UNDELIVERABLE;
            default -> OutRecord.REFUSED;
        };
    }

    @Override
    CompletableFuture<?> publish(String otherTopic, byte[] payload, boolean retained) {
        return client.toAsync()
                .publish(
                        Mqtt5Publish.builder()
                                .topic(otherTopic)
                                .payload(payload)
                                .qos(MqttQos.AT_LEAST_ONCE)
                                .retain(retained)
                                .build());
    }

    @Override
    boolean isNumbered() {
        return true;
    }

    @Override
    byte[] payloadOf(Object message) {
        return ((Mqtt5Publish) message).getPayloadAsBytes();
    }

    @Override
    int sizeOf(Object message) {
        ByteBuffer payload = ((MqttPublish) message).getRawPayload(); // without a copy of it
        return payload == null ? 0 : payload.remaining();
    }

    @Override
    int packetSizeOf(Object message) {
        MqttPublish publish = (MqttPublish) message;
        int properties = identifier + publish.getUserProperties().encodedLength();
        if (publish.getRawMessageExpiryInterval() != MqttPublish.NO_MESSAGE_EXPIRY) {
            properties += 1 + 4;
        }
        if (publish.getRawPayloadFormatIndicator() != null) {
            properties += 1 + 1;
        }
        if (publish.getRawContentType() != null) {
            properties += 1 + publish.getRawContentType().encodedLength();
        }
        if (publish.getRawResponseTopic() != null) {
            properties += 1 + publish.getRawResponseTopic().encodedLength();
        }
        if (publish.getRawCorrelationData() != null) {
            properties += 1 + 2 + publish.getRawCorrelationData().remaining();
        }
        return PacketSize.publish(topicBytes, isAcknowledged(message), properties, sizeOf(message));
    }

    @Override
    String stampOf(Object message) {
        List<? extends Mqtt5UserProperty> properties =
                ((Mqtt5Publish) message).getUserProperties().asList();
        for (int i = 0; i < properties.size(); i++) {
            Mqtt5UserProperty property = properties.get(i);
            if (property.getName().equals(STAMP)) {
                return property.getValue().toString();
            }
        }
        return null;
    }

    @Override
    Parcel.Form formOf(Object message) {
        MqttUtf8String type = ((MqttPublish) message).getRawContentType();
        if (type == null) {
            return Parcel.Form.PLAIN;
        }
        return type.equals(ZSTD)
                ? Parcel.Form.ZSTD
                : type.equals(FRAMED) ? Parcel.Form.FRAMED : Parcel.Form.PLAIN;
    }

    @Override
    boolean isMark(Object message) {
        return ((Mqtt5Publish) message).getTopic().equals(marks);
    }

    @Override
    boolean isAcknowledged(Object message) {
        return ((Mqtt5Publish) message).getQos() != MqttQos.AT_MOST_ONCE;
    }

    @Override
    void sendDisconnect() {
        flows.add(client.disconnect().subscribe(() -> {}, error -> {}));
    }
}
