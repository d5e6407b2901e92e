package io.speck.link.source;

import io.speck.link.metrics.LinkCounter;
import io.speck.link.metrics.LinkMetrics;
import io.speck.link.protocol.HandOver;
import io.speck.link.protocol.LogPosition;
import io.speck.link.protocol.ReaderState;
import io.speck.link.protocol.TakenNumbers;
import io.speck.link.protocol.Until;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkClient;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.ReaderConnection;
import io.speck.link.transport.ReaderListener;
import io.speck.link.transport.ReadingRange;
import io.speck.link.transport.Transports;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads a link.
 *
 * <p>Messages wait in the connection's inbox, which the link's window bounds: about that many may be
 * unacknowledged. When a checkpoint completes, all that was taken before it is acknowledged, in the
 * order of arrival. A savepoint that is not the last is never reported as complete: the next
 * checkpoint acknowledges for it.
 *
 * <p>All methods are called by one thread of the engine: {@link #start}, {@link #restore}, then
 * {@link #poll} as long as there is something, {@link #snapshot} for a checkpoint, and {@link
 * #complete} or {@link #abort} when it has ended.
 */
public final class LinkReader implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(LinkReader.class);
    private static final CompletableFuture<Void> AVAILABLE =
            CompletableFuture.completedFuture(null);
    private static final int RECORDS_A_POLL = 32; // then the task looks into its mailbox
    private static final int SHARE_OF_MEMORY = 8;

    private final LinkConfig link;
    private final HandOver handOver;
    private final Until until;
    private final boolean keepsLog;
    private final long maxUncoveredBytes;
    private final LinkCounter dropped;
    private final LinkCounter sessionsLost;
    private final LinkCounter connections;

    private final AtomicReference<CompletableFuture<Void>> availability = new AtomicReference<>();
    private volatile LinkClient<? extends ReaderConnection> client; // null: not started

    // for gauges, which other threads read: as of the last checkpoint
    private volatile long underWay;
    private volatile TakenNumbers lastSnapshot = new TakenNumbers();

    // of the task's thread only
    private final RecordIntake intake;
    private final PendingCheckpoints checkpoints = new PendingCheckpoints();
    private final TakenAnnouncer announcer;
    private boolean restored;
    private boolean readBefore; // the state is of this link
    private LogPosition position = LogPosition.NONE; // where that ended
    private ReaderConnection polled; // null: none yet
    private long acknowledged; // messages of it
    private long coveredBytes; // of records in complete checkpoints

    /**
     * @param handOver what the previous reader of the link has taken
     * @param until the numbers up to which it is read
     */
    public LinkReader(LinkConfig link, HandOver handOver, Until until, LinkMetrics metrics) {
        this(link, handOver, until, metrics, maxUncoveredBytes(link.delivery()));
    }

    /** @param maxUncoveredBytes so much is taken at most that no complete checkpoint covers */
    public LinkReader(
            LinkConfig link,
            HandOver handOver,
            Until until,
            LinkMetrics metrics,
            long maxUncoveredBytes) {
        this.link = link;
        this.handOver = handOver;
        this.maxUncoveredBytes = maxUncoveredBytes;
        this.until = until;
        this.keepsLog = Transports.of(link.broker()).keepsLogs();
        // in a log these are positions, which its connections read
        this.intake = new RecordIntake(link, keepsLog ? Until.EVER : until, metrics);
        this.announcer = new TakenAnnouncer(link);
        this.dropped = metrics.counter("messagesDropped");
        this.sessionsLost = metrics.counter("sessionsLost");
        this.connections = metrics.counter("connections");
        metrics.gauge("unacknowledged", () -> underWay);
        metrics.gauge("connected", () -> isConnected() ? 1 : 0);
        metrics.gauge(LinkMetrics.LINK_PROBLEM, this::describeProblem);
        metrics.gauge("bytesWaiting", this::bytesWaiting);
        metrics.gauge("messagesTaken", () -> lastSnapshot.messages());
        metrics.gauge("messagesMissing", () -> lastSnapshot.missing());
        metrics.gauge("messagesLost", () -> lastSnapshot.lost());
    }

    /**
     * An exactly-once sink keeps in memory what comes between two checkpoints, and nothing but what
     * the job takes in bounds that. The Receive Maximum counts messages, of up to 10 000 records.
     */
    private static long maxUncoveredBytes(Delivery delivery) {
        return delivery == Delivery.EXACTLY_ONCE
                ? Runtime.getRuntime().maxMemory() / SHARE_OF_MEMORY
                : Long.MAX_VALUE;
    }

    /**
     * Connects. Who sees the task run may rely on it that messages are kept for it from then on: so
     * this waits for the subscription, but not for ever for a broker that is away.
     */
    public void start() {
        ReadingRange range = new ReadingRange(handOver, until, position, readBefore);
        client = Transports.of(link.broker()).openReader(link, range, new Events());
        client.start();
        client.awaitReady();
    }

    /**
     * Goes on from the numbers of a state, or from none. Must be called once, before the start when
     * there is something to restore, else also soon after it.
     */
    public void restore(ReaderState state) {
        if (restored) {
            throw new IllegalStateException(
                    "cannot read " + link + ": there are two states of its reader");
        }
        restored = true;
        readBefore = state.taken().isOf(link.clientId());
        position = readBefore ? state.position() : LogPosition.NONE;
        intake.restore(state, keepsLog ? HandOver.NONE : handOver);
        lastSnapshot = state.taken().copy();
        wake(); // messages may wait already
    }

    /**
     * Takes some records.
     *
     * @return whether to call it again at once; if not, {@link #available} says when
     */
    public boolean poll(Consumer<byte[]> output) {
        if (!restored) {
            return false;
        }
        ReaderConnection connection = current();
        if (connection != polled) {
            switchTo(connection);
        }
        for (int i = 0; i < RECORDS_A_POLL; i++) {
            if (isHeld()) {
                return false;
            }
            if (intake.hasOpenBatch()) {
                intake.takeNextOfBatch(output);
                continue;
            }
            Object message = connection.poll();
            if (message == null) {
                connection.resumeIfDrained();
                return false;
            }
            intake.take(message, output);
        }
        connection.resumeIfDrained();
        return true;
    }

    /** Whether the job has taken all that it may until a checkpoint is complete. */
    private boolean isHeld() {
        return intake.takenBytes() - coveredBytes >= maxUncoveredBytes;
    }

    private void switchTo(ReaderConnection connection) {
        polled = connection;
        acknowledged = 0;
        intake.startOver(connection);
        announcer.startOver();
    }

    /** Completes when there is something to {@link #poll}. */
    public CompletableFuture<Void> available() {
        if (hasMessages()) {
            return AVAILABLE;
        }
        CompletableFuture<Void> future = availability.get();
        if (future == null) {
            future = new CompletableFuture<>();
            availability.set(future);
        }
        if (hasMessages()) { // they came in between
            wake();
        }
        return future;
    }

    private boolean hasMessages() {
        ReaderConnection connection = current();
        return restored
                && !isHeld()
                && (intake.hasOpenBatch() || (connection != null && connection.hasMessages()));
    }

    private void wake() {
        CompletableFuture<Void> future = availability.getAndSet(null);
        if (future != null) {
            future.complete(null);
        }
    }

    /** Returns what a checkpoint that begins now keeps; null: nothing is restored yet. */
    public ReaderState snapshot(long checkpoint) {
        if (!restored) {
            return null;
        }
        if (current() != polled) { // an idle reader has to announce over it, too
            switchTo(current());
        }
        PendingCheckpoints.Coverage coverage = intake.snapshot(checkpoint);
        checkpoints.add(coverage);
        lastSnapshot = coverage.taken();
        underWay = coverage.arrivals() - acknowledged;
        return new ReaderState(coverage.taken(), coverage.position());
    }

    /** A checkpoint is complete: what it covers is acknowledged. */
    public void complete(long checkpoint) {
        PendingCheckpoints.Coverage coverage = checkpoints.complete(checkpoint);
        if (coverage == null) {
            return;
        }
        coveredBytes = coverage.takenBytes();
        wake(); // it may go on
        if (polled != null && coverage.connection() == polled) {
            acknowledged = coverage.arrivals();
            polled.acknowledgeUpTo(acknowledged);
        } // else it is lost, and what came over it comes again
        announcer.announce(coverage, dropped.getCount(), polled);
    }

    /** A checkpoint will never be complete. */
    public void abort(long checkpoint) {
        checkpoints.abort(checkpoint);
    }

    /** Returns how many checkpoints are under way. */
    public int pendingCheckpoints() {
        return checkpoints.size();
    }

    @Override
    public void close() {
        if (client == null) {
            return;
        }
        if (polled != null && polled.isReady()) {
            announcer.awaitLast();
        }
        client.close();
    }

    private long bytesWaiting() {
        ReaderConnection connection = current();
        return connection == null ? 0 : connection.waitingBytes();
    }

    private ReaderConnection current() {
        return client == null ? null : client.current();
    }

    private String describeProblem() {
        return client == null ? "" : client.problem();
    }

    private boolean isConnected() {
        return client != null && client.isConnected();
    }

    /** What happens on the network thread. */
    private final class Events implements ReaderListener {
        private boolean sessionMade;

        @Override
        public void onAdmitted(ReaderConnection connection, boolean sessionPresent) {
            // also at the first start: the session is reserved before, and may be lost since then
            sessionMade = !sessionPresent;
            if (sessionMade && link.delivery().isAcknowledged()) {
                sessionsLost.inc();
                LOG.error(
                        "the session {} at {} is lost: of messages that waited in it, those come"
                                + " again that their sinks still have",
                        link.clientId(),
                        link);
            }
        }

        @Override
        public void onReady(ReaderConnection connection, boolean sessionPresent) {
            connections.inc();
            if (sessionMade) {
                sessionMade = false;
                connection.announceSession(link.delivery().isAcknowledged());
            }
            wake(); // to announce over this connection what was announced over the last
        }

        @Override
        public void onMessages(ReaderConnection connection) {
            dropped.inc(connection.takeOverflow());
            wake();
        }
    }
}
