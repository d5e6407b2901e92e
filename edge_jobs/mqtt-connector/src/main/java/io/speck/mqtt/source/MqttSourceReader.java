package io.speck.mqtt.source;

import static io.speck.mqtt.connection.Supervisor.LINK_PROBLEM;

import io.speck.mqtt.connection.ConnectionListener;
import io.speck.mqtt.connection.Delivery;
import io.speck.mqtt.connection.LinkConfig;
import io.speck.mqtt.connection.MqttConnection;
import io.speck.mqtt.connection.Supervisor;
import io.speck.mqtt.metrics.TaskCpuTime;
import io.speck.mqtt.protocol.HandOver;
import io.speck.mqtt.protocol.TakenNumbers;
import io.speck.mqtt.protocol.Topics;
import io.speck.mqtt.protocol.Until;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.groups.SourceReaderMetricGroup;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads a link.
 *
 * <p>Messages wait in the connection's inbox, which the Receive Maximum bounds: the broker sends no
 * more than about that many unacknowledged ones. When a checkpoint completes, all that was taken
 * before it is acknowledged, in the order of arrival. A savepoint that is not the last is never
 * reported as complete: the next checkpoint acknowledges for it.
 */
final class MqttSourceReader implements SourceReader<byte[], TopicSplit> {
    private static final Logger LOG = LoggerFactory.getLogger(MqttSourceReader.class);
    private static final CompletableFuture<Void> AVAILABLE =
            CompletableFuture.completedFuture(null);
    private static final int RECORDS_A_POLL = 32; // then the task looks into its mailbox
    private static final int SHARE_OF_MEMORY = 8;

    private final LinkConfig link;
    private final HandOver handOver;
    private final long maxUncoveredBytes;
    private final Counter dropped;
    private final Counter sessionsLost;
    private final Counter connections;

    private final AtomicReference<CompletableFuture<Void>> availability = new AtomicReference<>();
    private volatile Supervisor supervisor; // null: not started

    // for gauges, which other threads read: as of the last checkpoint
    private volatile long underWay;
    private volatile TakenNumbers lastSnapshot = new TakenNumbers();

    // of the task's thread only
    private final RecordIntake intake;
    private final PendingCheckpoints checkpoints = new PendingCheckpoints();
    private final TakenAnnouncer announcer;
    private boolean assigned; // the split
    private MqttConnection polled; // null: none yet
    private long acknowledged; // messages of it
    private long coveredBytes; // of records in complete checkpoints

    /**
     * @param handOver what the previous reader of the link has taken
     * @param until the numbers up to which it is read
     */
    MqttSourceReader(
            LinkConfig link, HandOver handOver, Until until, SourceReaderMetricGroup metrics) {
        this(link, handOver, until, metrics, maxUncoveredBytes(link.delivery()));
    }

    /** @param maxUncoveredBytes so much is taken at most that no complete checkpoint covers */
    MqttSourceReader(
            LinkConfig link,
            HandOver handOver,
            Until until,
            SourceReaderMetricGroup metrics,
            long maxUncoveredBytes) {
        this.link = link;
        this.handOver = handOver;
        this.maxUncoveredBytes = maxUncoveredBytes;
        this.intake = new RecordIntake(link, until, metrics);
        this.announcer = new TakenAnnouncer(link);
        this.dropped = metrics.counter("messagesDropped");
        this.sessionsLost = metrics.counter("sessionsLost");
        this.connections = metrics.counter("connections");
        metrics.gauge("unacknowledged", () -> underWay);
        metrics.gauge("connected", () -> isConnected() ? 1 : 0);
        metrics.gauge(LINK_PROBLEM, this::describeProblem);
        metrics.gauge("bytesWaiting", this::bytesWaiting);
        metrics.gauge("messagesTaken", () -> lastSnapshot.messages());
        metrics.gauge("messagesMissing", () -> lastSnapshot.missing());
        metrics.gauge("messagesLost", () -> lastSnapshot.lost());
        TaskCpuTime.register(metrics);
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
    @Override
    public void start() {
        supervisor = Supervisor.forReader(link, new Events());
        supervisor.start();
        supervisor.awaitReady();
    }

    /** Before the start when there is something to restore; else soon after it. */
    @Override
    public void addSplits(List<TopicSplit> splits) {
        if (assigned || splits.size() != 1) {
            throw new IllegalStateException(
                    "cannot read " + link + ": expected one split, got " + splits);
        }
        assigned = true;
        TakenNumbers taken = splits.get(0).taken();
        intake.restore(taken, handOver);
        lastSnapshot = taken.copy();
        wake(); // messages may wait already
    }

    @Override
    public InputStatus pollNext(ReaderOutput<byte[]> output) {
        if (!assigned) {
            return InputStatus.NOTHING_AVAILABLE;
        }
        MqttConnection connection = current();
        if (connection != polled) {
            switchTo(connection);
        }
        for (int i = 0; i < RECORDS_A_POLL; i++) {
            if (isHeld()) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            if (intake.hasOpenBatch()) {
                intake.takeNextOfBatch(output);
                continue;
            }
            Object message = connection.poll();
            if (message == null) {
                connection.resumeIfDrained();
                return InputStatus.NOTHING_AVAILABLE;
            }
            intake.take(message, output);
        }
        connection.resumeIfDrained();
        return InputStatus.MORE_AVAILABLE;
    }

    /** Whether the job has taken all that it may until a checkpoint is complete. */
    private boolean isHeld() {
        return intake.takenBytes() - coveredBytes >= maxUncoveredBytes;
    }

    private void switchTo(MqttConnection connection) {
        polled = connection;
        acknowledged = 0;
        intake.startOver(connection);
        announcer.startOver();
    }

    @Override
    public CompletableFuture<Void> isAvailable() {
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
        MqttConnection connection = current();
        return assigned
                && !isHeld()
                && (intake.hasOpenBatch() || (connection != null && connection.hasMessages()));
    }

    private void wake() {
        CompletableFuture<Void> future = availability.getAndSet(null);
        if (future != null) {
            future.complete(null);
        }
    }

    @Override
    public List<TopicSplit> snapshotState(long checkpoint) {
        if (!assigned) {
            return List.of();
        }
        if (current() != polled) { // an idle reader has to announce over it, too
            switchTo(current());
        }
        PendingCheckpoints.Coverage coverage = intake.snapshot(checkpoint);
        checkpoints.add(coverage);
        lastSnapshot = coverage.taken();
        underWay = coverage.arrivals() - acknowledged;
        return List.of(new TopicSplit(coverage.taken()));
    }

    @Override
    public void notifyCheckpointComplete(long checkpoint) {
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

    @Override
    public void notifyCheckpointAborted(long checkpoint) {
        checkpoints.abort(checkpoint);
    }

    /** Returns how many checkpoints are under way. */
    int pendingCheckpoints() {
        return checkpoints.size();
    }

    @Override
    public void notifyNoMoreSplits() {}

    @Override
    public void close() {
        if (supervisor == null) {
            return;
        }
        if (polled != null && polled.isReady()) {
            announcer.awaitLast();
        }
        supervisor.close();
    }

    private long bytesWaiting() {
        MqttConnection connection = current();
        return connection == null ? 0 : connection.waitingBytes();
    }

    private MqttConnection current() {
        return supervisor == null ? null : supervisor.current();
    }

    private String describeProblem() {
        return supervisor == null ? "" : supervisor.problem();
    }

    private boolean isConnected() {
        return supervisor != null && supervisor.isConnected();
    }

    /** What happens on the network thread. */
    private final class Events implements ConnectionListener {
        private boolean sessionMade;

        @Override
        public void onAdmitted(MqttConnection connection, boolean sessionPresent) {
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
        public void onReady(MqttConnection connection, boolean sessionPresent, int sendMaximum) {
            connections.inc();
            if (sessionMade) {
                sessionMade = false;
                announceSession(connection);
            }
            wake(); // to announce over this connection what was announced over the last
        }

        /** A sink that waits for the session goes on at the second message, and so sends all once. */
        private void announceSession(MqttConnection connection) {
            if (link.delivery().isAcknowledged()) {
                connection.publish(
                        Topics.READERS + link.topic(),
                        Topics.AGAIN.getBytes(StandardCharsets.UTF_8),
                        false);
            }
            connection.publish(
                    Topics.ofSession(link.topic(), link.clientId()), Topics.sessionMade(), true);
        }

        @Override
        public void onMessages(MqttConnection connection) {
            dropped.inc(connection.takeOverflow());
            wake();
        }
    }
}
