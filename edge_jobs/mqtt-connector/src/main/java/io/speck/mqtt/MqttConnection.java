package io.speck.mqtt;

import com.hivemq.client.internal.mqtt.MqttClientConnectionConfig;
import com.hivemq.client.internal.mqtt.handler.publish.incoming.MqttIncomingQosHandler;
import io.netty.channel.Channel;
import io.netty.util.concurrent.EventExecutor;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
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

        /** Something is said about a sink's link, on a retained bookkeeping topic. */
        default void said(MqttConnection connection, String topic, byte[] payload) {}

        /** The end, also of a failed attempt to connect. */
        void ended(MqttConnection connection, Throwable cause);
    }

    /** Whether a topic has readers: {@code some} or {@code none}. */
    static final String READERS = "speck/readers/";

    /** The last number of a sink that the broker has taken, by its client id. */
    static final String SENT = "speck/sent/";

    private static final Logger LOG = LoggerFactory.getLogger(MqttConnection.class);
    private static final int CHUNK = 256;
    private static final int BREATH_S = 5; // well below the keep-alive time

    final LinkConfig link;
    final SpscUnboundedAtomicArrayQueue<Object> inbox = new SpscUnboundedAtomicArrayQueue<>(CHUNK);
    private final SpscUnboundedAtomicArrayQueue<OutRecord> inFlight =
            new SpscUnboundedAtomicArrayQueue<>(CHUNK);
    private final int inboxLimit;
    private final Events events;
    private final EventLoops loops;
    private final CompletableFuture<Void> end = new CompletableFuture<>();

    // of the network thread only
    private final AckGate gate = new AckGate();
    private Channel channel;
    private boolean arrivedPending;
    private boolean settledPending;
    private long settledCount;
    private long overflow;
    private final Runnable arrivedTask = this::arrivedBatch;
    private final Runnable settledTask = this::settledBatch;

    /** How many records have an outcome; written by the network thread at the end of a batch. */
    volatile long settled;

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

    /** Sends a record; its outcome is set later. Only by one thread, only while {@link #isReady}. */
    abstract void transmit(OutRecord record);

    /** Publishes a retained message at QoS 1. */
    abstract CompletableFuture<?> publishRetained(String topic, byte[] payload);

    abstract byte[] payloadOf(Object message);

    /** The message's stamp, or null. */
    abstract String stampOf(Object message);

    /** Whether messages carry stamps here, so that readers can drop repeats. */
    abstract boolean isNumbered();

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

    final void send(OutRecord record) {
        record.outcome = OutRecord.UNDER_WAY;
        inFlight.offer(record);
        transmit(record);
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
        if (paused && inbox.size() <= inboxLimit / 2) {
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
    final void takeOver(Object connectionConfig) {
        MqttClientConnectionConfig config = (MqttClientConnectionConfig) connectionConfig;
        config.setSessionExpiryInterval(0);
        channel = config.getChannel();
        if (channel.pipeline().get(MqttIncomingQosHandler.NAME) != null) {
            channel.pipeline().addBefore(MqttIncomingQosHandler.NAME, AckGate.NAME, gate);
        }
    }

    final void onMessage(Object message) {
        boolean full = inbox.size() >= inboxLimit;
        if (full && !link.delivery().acknowledged()) {
            overflow++; // at QoS 0 the broker could only pile them up
        } else {
            inbox.offer(message);
            if (full && !paused && !leaving) {
                pause();
            }
        }
        if (!arrivedPending) {
            arrivedPending = true;
            currentLoop().execute(arrivedTask);
        }
    }

    final void onSaid(String topic, byte[] payload) {
        events.said(this, topic, payload);
    }

    final void onResult(Object sent, int outcome, String problem) {
        OutRecord record = inFlight.poll();
        if (record == null || record.sent != sent) {
            // the protocol promises order; without it nothing is known: begin anew
            LOG.error("{} acknowledges out of order; connecting anew", link);
            disconnect();
            return;
        }
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

    /** More than the Receive Maximum is here (see {@link AckGate}): let TCP hold the broker back. */
    private void pause() {
        paused = true;
        channel.config().setAutoRead(false);
        breathe();
    }

    /** While reading is off, answers to pings must be seen now and then. */
    private void breathe() {
        if (paused && !ended) {
            channel.read();
            currentLoop().schedule(this::breathe, BREATH_S, TimeUnit.SECONDS);
        }
    }

    private void resume() {
        if (paused) {
            paused = false;
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
