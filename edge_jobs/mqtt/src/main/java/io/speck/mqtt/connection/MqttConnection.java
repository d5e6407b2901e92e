package io.speck.mqtt.connection;

import io.netty.channel.Channel;
import io.netty.util.concurrent.EventExecutor;
import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.transport.Guilt;
import io.speck.link.transport.InFlightMessages;
import io.speck.link.transport.Inbox;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.OutgoingMessage.Outcome;
import io.speck.link.transport.OutgoingMessage;
import io.speck.link.transport.ReaderConnection;
import io.speck.link.transport.TakenReport;
import io.speck.link.transport.WriterConnection;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One connection of one client to its broker: made once, lost once, never made again.
 *
 * <p>A new one after a loss forgets the packet ids of the old one. This matters: a broker that was
 * killed may come back with an older session, in which the same id means another message.
 *
 * <p>Messages and outcomes are passed without locks, by queues with one writer (the network thread)
 * and one reader (the task's thread).
 */
public abstract class MqttConnection implements ReaderConnection, WriterConnection {
    /** Seconds after which a broker that says nothing is asked whether it lives. */
    public static final int KEEP_ALIVE_S = ClientSettings.KEEP_ALIVE_S;

    private static final Logger LOG = LoggerFactory.getLogger(MqttConnection.class);

    final LinkConfig link;
    private final EventLoops loops;
    private final ConnectionListener listener;
    private final Inbox inbox;
    private final InFlightMessages inFlight = new InFlightMessages();
    private final CompletableFuture<Void> end = new CompletableFuture<>();

    // of the network thread only
    private final AckGate acks = new AckGate();
    private final PingGate pings = new PingGate();
    private Channel channel;
    private boolean messagesReported = true;
    private boolean outcomesReported = true;
    private long overflow;
    private final Runnable reportMessages = this::reportMessages;
    private final Runnable reportOutcomes = this::reportOutcomes;

    private volatile long settled; // written at the end of a batch
    private volatile int maxPayload = Integer.MAX_VALUE;
    private volatile EventExecutor loop;
    private volatile boolean paused;
    private volatile boolean leaving;
    private volatile boolean ready;
    private volatile boolean ended;
    private volatile Guilt guilt = Guilt.NONE;
    private volatile String refusal;

    MqttConnection(LinkConfig link, EventLoops loops, ConnectionListener listener) {
        this.link = link;
        this.inbox =
                new Inbox(link.delivery().isAcknowledged() ? link.window() : LinkConfig.MAX_WINDOW);
        this.loops = loops;
        this.listener = listener;
    }

    // ---- what the protocol versions do

    /** Starts connecting. A reader subscribes at each connection: some brokers need it. */
    abstract void open(boolean reader);

    /**
     * Sends a message; its outcome is reported later.
     *
     * @return how many bytes its packet has
     */
    abstract int transmit(OutgoingMessage message);

    /**
     * Publishes something beside the data, at QoS 1.
     *
     * @return the reason if the broker refuses it, null if it takes it
     */
    abstract CompletableFuture<String> publish(String topic, byte[] payload, boolean retained);

    abstract void sendDisconnect();

    // ---- for the user of the connection

    /** Says good-bye to the broker; what was sent before gets there before. */
    public final void disconnect() {
        EventExecutor onLoop = loop;
        leaving = true;
        if (onLoop != null) {
            onLoop.execute(this::resumeReading); // the end of the connection must be read
        }
        sendDisconnect();
    }

    @Override
    public final boolean isReady() {
        return ready && !ended;
    }

    @Override
    public final boolean isEnded() {
        return ended;
    }

    /** Returns whether it ended because of a message that was sent; known when it has ended. */
    @Override
    public final Guilt guilt() {
        return guilt;
    }

    /** Whether the broker has accepted it; of the network thread. */
    final boolean wasAccepted() {
        return channel != null;
    }

    /** Returns what the broker has refused so that the connection is of no use; null: nothing. */
    final String refusal() {
        return refusal;
    }

    /** Completes, normally, when the connection is no more. */
    final CompletableFuture<Void> end() {
        return end;
    }

    /**
     * Sends a message. Only by one thread, only while {@link #isReady}.
     *
     * @return how many bytes its packet has
     */
    @Override
    public final int send(OutgoingMessage message) {
        inFlight.add(message);
        return transmit(message);
    }

    /** Returns how many messages have an outcome, as of the last {@code onOutcomes}. */
    @Override
    public final long settledCount() {
        return settled;
    }

    /**
     * Returns the largest payload that the broker takes.
     *
     * @param epoch of the message's number; null: it has none
     */
    @Override
    public final int maxPayload(ProducerEpoch epoch) {
        return maxPayload - (epoch == null ? 0 : epoch.maxStampBytes());
    }

    /** Returns the next message, or null; only by one thread. */
    @Override
    public final Object poll() {
        Object message = inbox.poll();
        if (message != null) {
            inbox.release(messages().sizeOf(message));
        }
        return message;
    }

    @Override
    public final boolean hasMessages() {
        return !inbox.isEmpty();
    }

    /** Returns how much payload waits; read by any thread. */
    @Override
    public final long waitingBytes() {
        return inbox.waitingBytes();
    }

    /** Acknowledges the first messages of this connection: so many, counted from its beginning. */
    @Override
    public final void acknowledgeUpTo(long count) {
        EventExecutor onLoop = loop;
        if (onLoop != null && !ended) {
            onLoop.execute(() -> acks.releaseUpTo(count));
        }
    }

    /** Lets the broker go on sending if enough was taken; the inbox's reader calls it often. */
    @Override
    public final void resumeIfDrained() {
        if (paused && inbox.isHalfEmpty()) {
            loop.execute(this::resumeReading);
        }
    }

    /** Returns how many messages found a full inbox since the last call; network thread only. */
    @Override
    public final long takeOverflow() {
        long count = overflow;
        overflow = 0;
        return count;
    }

    @Override
    public final CompletableFuture<String> reportSent(byte[] json) {
        return publish(Topics.SENT + link.clientId(), json, true);
    }

    @Override
    public final CompletableFuture<?> reportTaken(TakenReport report) {
        byte[] json = report.toJson().getBytes(StandardCharsets.UTF_8);
        return publish(Topics.TAKEN + link.clientId(), json, true);
    }

    /** A sink that waits for the session goes on at the second message, and so sends all once. */
    @Override
    public final void announceSession(boolean resends) {
        if (resends) {
            byte[] again = Topics.AGAIN.getBytes(StandardCharsets.UTF_8);
            publish(Topics.READERS + link.topic(), again, false);
        }
        publish(Topics.ofSession(link.topic(), link.clientId()), Topics.sessionMade(), true);
    }

    // ---- called by the protocol versions, on the network thread

    final void reportAdmitted(boolean sessionPresent) {
        listener.onAdmitted(this, sessionPresent);
    }

    final void reportAnnouncement(String topic, byte[] payload) {
        listener.onAnnouncement(this, topic, payload);
    }

    final void reportReady(boolean sessionPresent, int sendMaximum) {
        loop = loops.current();
        ready = true;
        listener.onReady(this, sessionPresent, sendMaximum);
    }

    final void reportEnd(Throwable cause) {
        guilt = ready && !leaving ? LinkProblem.guiltOf(cause) : Guilt.NONE;
        ended = true;
        listener.onEnd(this, cause);
        end.complete(null);
    }

    /**
     * Sets the limit of what may be sent. A larger message would be refused by the client library,
     * or, worse, go without its stamp.
     *
     * @param bytes of payload and stamp
     */
    final void limitPayload(int bytes) {
        maxPayload = bytes;
    }

    /** The broker takes no message of this size, though it had not said so. */
    @Override
    public final void noteTooLarge(OutgoingMessage message) {
        int stamp = message.epoch() == null ? 0 : message.epoch().maxStampBytes();
        int bytes = message.payloadBytes() + message.message().propertyBytes() + stamp;
        maxPayload = Math.min(maxPayload, bytes - 1);
    }

    /** A reader's subscription was refused: there is nothing to do here. */
    final void leaveRefused(String subscription) {
        refusal = subscription;
        disconnect();
    }

    /** Installs the gates, when the library is connected and has not read any message yet. */
    final void installGates(Object connectionConfig, boolean reader) {
        HiveMqInternals.forgetSessionAtEnd(connectionConfig);
        channel = HiveMqInternals.channelOf(connectionConfig);
        if (!reader && isNumbered() && !HiveMqInternals.readUnknownPubAckCodes(channel)) {
            LOG.warn("{}: a refusal that MQTT 5 does not know ends the connection", link);
        }
        if (reader && HiveMqInternals.addBehindPubAcks(channel, AckGate.NAME, acks)) {
            HiveMqInternals.addBehindPings(channel, PingGate.NAME, pings);
        }
    }

    final void receive(Object message) {
        boolean full = inbox.isFull();
        boolean acknowledged = link.delivery().isAcknowledged();
        if (full && !acknowledged && !messages().isMark(message)) {
            overflow++; // at QoS 0 the broker could only pile them up
        } else {
            inbox.add(message, messages().sizeOf(message));
            if (full && acknowledged && !paused && !leaving) {
                pauseReading();
            }
        }
        if (messagesReported) {
            messagesReported = false;
            currentLoop().execute(reportMessages);
        }
    }

    /** The broker has answered. */
    final void settle(Object packet, Outcome outcome, String problem) {
        if (!inFlight.settle(packet, outcome, problem)) {
            // the protocol promises order; without it nothing is known: begin anew
            LOG.error("{} acknowledges out of order; connecting anew", link);
            disconnect();
            return;
        }
        scheduleOutcomes();
    }

    /** A message was not sent at all. */
    final void settleUnsent(Object packet, Outcome outcome, String problem) {
        inFlight.settleUnsent(packet, outcome, problem);
        scheduleOutcomes();
    }

    private void scheduleOutcomes() {
        if (outcomesReported && inFlight.settledCount() > settled) {
            outcomesReported = false;
            currentLoop().execute(reportOutcomes);
        }
    }

    private void reportMessages() {
        messagesReported = true;
        listener.onMessages(this);
    }

    private void reportOutcomes() {
        outcomesReported = true;
        settled = inFlight.settledCount();
        listener.onOutcomes(this);
    }

    /**
     * More is here than the task can take: let TCP hold the broker back. Nothing at all is read
     * then, not even answers to pings, see {@link PingGate}.
     */
    private void pauseReading() {
        paused = true;
        pings.setAnswering(true);
        channel.config().setAutoRead(false);
    }

    private void resumeReading() {
        if (paused) {
            paused = false;
            pings.setAnswering(false);
            channel.config().setAutoRead(true);
        }
    }

    private EventExecutor currentLoop() {
        if (loop == null) {
            loop = loops.current();
        }
        return loop;
    }
}
