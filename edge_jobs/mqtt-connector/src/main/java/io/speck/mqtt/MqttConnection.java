package io.speck.mqtt;

import com.hivemq.client.internal.mqtt.MqttClientConnectionConfig;
import com.hivemq.client.internal.mqtt.handler.ping.MqttPingHandler;
import com.hivemq.client.internal.mqtt.handler.publish.incoming.MqttIncomingQosHandler;
import io.netty.channel.Channel;
import io.netty.util.concurrent.EventExecutor;
import java.util.IdentityHashMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.jctools.queues.atomic.SpscUnboundedAtomicArrayQueue;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One connection of one client to its broker: made once, lost once, never made again.
 *
 * <p>A new one after a loss forgets the packet ids of the old one. This matters: a broker that was
 * killed may come back with an older session, in which the same id means another message.
 *
 * <p>Messages and results are handed over without locks, by a queue with one writer (the network
 * thread) and one reader (the task's thread).
 */
abstract class MqttConnection {
    /** Called on the network thread. */
    interface Events {
        /** Connected, and subscribed if it is a reader's. */
        void ready(MqttConnection connection, boolean sessionPresent, int sendMaximum);

        /** There are messages in {@link #inbox}; called once for each batch read from the wire. */
        void arrived(MqttConnection connection);

        /** Records in flight have an outcome; called once for each batch. */
        void settled(MqttConnection connection);

        /** The broker has let a reader in; it is not subscribed yet. */
        default void admitted(MqttConnection connection, boolean sessionPresent) {}

        /** Something is said about a sink's link, on a retained bookkeeping topic. */
        default void said(MqttConnection connection, String topic, byte[] payload) {}

        /** The end, also of a failed attempt to connect. */
        void ended(MqttConnection connection, Throwable cause);
    }

    /** Whether a topic has readers: {@code some} or {@code none}. */
    static final String READERS = "speck/readers/";

    /** Said there, and not retained, by a reader that has lost its session. */
    static final String AGAIN = "again";

    /** The last number of a sink that the broker has taken, by its client id. */
    static final String SENT = "speck/sent/";

    /**
     * The control plane's marks for a reader, by its client id. They go through its session, behind
     * what waits there for it.
     */
    static final String MARKS = "speck/marks/";

    /** How much may wait in an inbox, whatever the Receive Maximum allows. */
    static final long MOST_INBOX_BYTES = 16 << 20;

    private static final Logger LOG = LoggerFactory.getLogger(MqttConnection.class);
    private static final int CHUNK = 256;

    /** An outcome that came out of turn. */
    private record Early(int outcome, String problem) {}

    final LinkConfig link;
    private final SpscUnboundedAtomicArrayQueue<Object> inbox = new SpscUnboundedAtomicArrayQueue<>(CHUNK);
    private final SpscUnboundedAtomicArrayQueue<OutRecord> inFlight =
            new SpscUnboundedAtomicArrayQueue<>(CHUNK);
    private final int inboxLimit;
    private final AtomicLong bytesTaken = new AtomicLong(); // out of the inbox
    private final Events events;
    private final EventLoops loops;
    private final CompletableFuture<Void> end = new CompletableFuture<>();

    // of the network thread only
    private final AckGate gate = new AckGate();
    private final PingGate pings = new PingGate();
    private Channel channel;
    private boolean arrivedPending;
    private boolean settledPending;
    private long settledCount;
    private long overflow;
    private final IdentityHashMap<Object, Early> early = new IdentityHashMap<>();
    private final Runnable arrivedTask = this::arrivedBatch;
    private final Runnable settledTask = this::settledBatch;

    /** How many records have an outcome; written by the network thread at the end of a batch. */
    volatile long settled;

    private volatile long bytesArrived; // written by the network thread only
    private volatile int mostPayload = Integer.MAX_VALUE;
    private volatile EventExecutor loop;
    private volatile boolean paused;
    private volatile boolean leaving;
    private volatile boolean ready;
    private volatile boolean ended;

    MqttConnection(LinkConfig link, EventLoops loops, Events events) {
        this.link = link;
        this.inboxLimit =
                link.delivery().acknowledged() ? link.window() : LinkConfig.MOST_WINDOW;
        this.loops = loops;
        this.events = events;
    }

    /** Starts connecting. A reader subscribes at each connection: some brokers need it. */
    abstract void open(boolean reader);

    /**
     * Sends a record; its outcome is set later. Only by one thread, only while {@link #isReady}.
     *
     * @return how many bytes its packet has
     */
    abstract int transmit(OutRecord record);

    /** Publishes a message of bookkeeping at QoS 1. */
    abstract CompletableFuture<?> publish(String topic, byte[] payload, boolean retained);

    final CompletableFuture<?> publishRetained(String topic, byte[] payload) {
        return publish(topic, payload, true);
    }

    abstract byte[] payloadOf(Object message);

    /** How many bytes the message's payload has. */
    abstract int sizeOf(Object message);

    /** How many bytes the packet had that brought the message. */
    abstract int packetSizeOf(Object message);

    /** Whether messages carry stamps here, so that readers can drop repeats. */
    abstract boolean isNumbered();

    /** The message's stamp, or null. */
    abstract String stampOf(Object message);

    /** How the message's records lie in its payload. */
    abstract Parcel.Form formOf(Object message);

    /** Whether it is no message of the link, but a mark. */
    abstract boolean isMark(Object message);

    /** Whether the broker waits for an acknowledgement: not if it was published at QoS 0. */
    abstract boolean isAcknowledged(Object message);

    /** Says good-bye to the broker; what was sent before gets there before. */
    final void disconnect() {
        EventExecutor onLoop = loop;
        leaving = true;
        if (onLoop != null) {
            onLoop.execute(this::resume); // the end of the connection must be read
        }
        sendDisconnect();
    }

    abstract void sendDisconnect();

    final boolean isReady() {
        return ready && !ended;
    }

    final boolean isEnded() {
        return ended;
    }

    /** Completes, normally, when the connection is no more. */
    final CompletableFuture<Void> end() {
        return end;
    }

    /** @return how many bytes its packet has */
    final int send(OutRecord record) {
        record.outcome = OutRecord.UNDER_WAY;
        inFlight.offer(record);
        return transmit(record);
    }

    /**
     * Whether the broker takes records of this size; known when the connection is ready.
     *
     * @param series of the record's number; null: it has none
     */
    final boolean fits(Series series, int payloadBytes) {
        return payloadBytes <= mostPayload(series);
    }

    final boolean fits(OutRecord record) {
        int bytes = record.payload.length + record.parcel.propertyBytes();
        return fits(record.series, bytes);
    }

    final int mostPayload(Series series) {
        return mostPayload - (series == null ? 0 : series.stampBytes());
    }

    /** The next message, or null; only by one thread. */
    final Object poll() {
        Object message = inbox.poll();
        if (message != null) {
            bytesTaken.lazySet(bytesTaken.getPlain() + sizeOf(message));
        }
        return message;
    }

    final boolean hasMessages() {
        return !inbox.isEmpty();
    }

    /** How much payload waits; read by any thread. */
    final long waitingBytes() {
        return bytesArrived - bytesTaken.get();
    }

    /** Acknowledges the first messages of this connection: so many, from its beginning. */
    final void acknowledgeUpTo(long count) {
        EventExecutor onLoop = loop;
        if (onLoop != null && !ended) {
            onLoop.execute(() -> gate.releaseUpTo(count));
        }
    }

    /** To be called by the inbox's reader now and then. */
    final void resumeIfDrained() {
        if (paused
                && inbox.size() <= inboxLimit / 2
                && waitingBytes() <= MOST_INBOX_BYTES / 2) {
            loop.execute(this::resume);
        }
    }

    /** How many messages found a full inbox since the last call; network thread only. */
    final long takeOverflow() {
        long count = overflow;
        overflow = 0;
        return count;
    }

    // ---- called by subclasses, on the network thread

    final void onAdmitted(boolean sessionPresent) {
        events.admitted(this, sessionPresent);
    }

    /**
     * A larger one would be refused by the client library, or, worse, go without its stamp.
     *
     * @param bytes of payload and stamp
     */
    final void onMostPayload(int bytes) {
        mostPayload = bytes;
    }

    final void onSaid(String topic, byte[] payload) {
        events.said(this, topic, payload);
    }

    final void onReady(boolean sessionPresent, int sendMaximum) {
        loop = loops.current();
        ready = true;
        events.ready(this, sessionPresent, sendMaximum);
    }

    /**
     * Takes over what the library's public face does not show, when it is connected and has not
     * read any message yet: the channel, and for how long it keeps a session's messages after a
     * loss. That is as long as the broker does, in a timer of the shared event loop: 30 days. As no
     * connection of ours is made twice, its own end is enough. The broker is not told.
     */
    final void takeOver(Object connectionConfig, boolean reader) {
        MqttClientConnectionConfig config = (MqttClientConnectionConfig) connectionConfig;
        config.setSessionExpiryInterval(0);
        channel = config.getChannel();
        if (reader && channel.pipeline().get(MqttIncomingQosHandler.NAME) != null) {
            channel.pipeline().addBefore(MqttIncomingQosHandler.NAME, AckGate.NAME, gate);
            if (channel.pipeline().get(MqttPingHandler.NAME) != null) {
                channel.pipeline().addBefore(MqttPingHandler.NAME, PingGate.NAME, pings);
            }
        }
    }

    final void onMessage(Object message) {
        boolean full = inbox.size() >= inboxLimit || waitingBytes() >= MOST_INBOX_BYTES;
        boolean acknowledged = link.delivery().acknowledged();
        if (full && !acknowledged && !isMark(message)) {
            overflow++; // at QoS 0 the broker could only pile them up
        } else {
            bytesArrived = bytesArrived + sizeOf(message);
            inbox.offer(message);
            if (full && acknowledged && !paused && !leaving) {
                pause();
            }
        }
        if (!arrivedPending) {
            arrivedPending = true;
            currentLoop().execute(arrivedTask);
        }
    }

    final void onResult(Object sent, int outcome, String problem) {
        OutRecord head = inFlight.peek();
        if (head == null || head.sent != sent) {
            // the protocol promises order; without it nothing is known: begin anew
            LOG.error("{} acknowledges out of order; connecting anew", link);
            disconnect();
            return;
        }
        settle(outcome, problem);
        settleEarly();
    }

    /** A record that was not sent at all: the client library says so at once, out of turn. */
    final void onFailure(Object sent, int outcome, String problem) {
        early.put(sent, new Early(outcome, problem));
        settleEarly();
    }

    private void settleEarly() {
        OutRecord head;
        while (!early.isEmpty() && (head = inFlight.peek()) != null) {
            Early known = head.sent == null ? null : early.remove(head.sent);
            if (known == null) {
                return;
            }
            settle(known.outcome, known.problem);
        }
    }

    /** Gives the oldest record in flight its outcome. */
    private void settle(int outcome, String problem) {
        OutRecord record = inFlight.poll();
        record.sent = null;
        record.problem = problem;
        record.outcome = outcome;
        settledCount++;
        if (!settledPending) {
            settledPending = true;
            currentLoop().execute(settledTask);
        }
    }

    final void onEnded(Throwable cause) {
        ended = true;
        events.ended(this, cause);
        end.complete(null);
    }

    /**
     * More is here than the task can take: let TCP hold the broker back. Nothing at all is read
     * then, answers to pings neither, see {@link PingGate}.
     */
    private void pause() {
        paused = true;
        pings.answer(true);
        channel.config().setAutoRead(false);
    }

    private void resume() {
        if (paused) {
            paused = false;
            pings.answer(false);
            channel.config().setAutoRead(true);
        }
    }

    private EventExecutor currentLoop() {
        if (loop == null) {
            loop = loops.current();
        }
        return loop;
    }

    private void arrivedBatch() {
        arrivedPending = false;
        events.arrived(this);
    }

    private void settledBatch() {
        settledPending = false;
        settled = settledCount;
        events.settled(this);
    }
}
