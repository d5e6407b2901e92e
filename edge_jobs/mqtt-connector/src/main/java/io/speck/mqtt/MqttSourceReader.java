package io.speck.mqtt;

import io.airlift.compress.zstd.ZstdDecompressor;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.groups.SourceReaderMetricGroup;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The reading half of a link.
 *
 * <p>Messages wait in the connection's inbox, which the Receive Maximum bounds: the broker sends no
 * more than about that many unacknowledged ones. Checkpoint n makes a {@link Cut}; when n (or a
 * later one) completes, all that arrived before it is acknowledged, in the order of arrival. A
 * savepoint that is not the last is never reported as complete: the next checkpoint acknowledges
 * for it.
 *
 * <p>The control plane may send a mark through the session, behind all that waits in it. It is no
 * record: the announcement of the first checkpoint that covers all that came before it names it.
 */
final class MqttSourceReader
        implements SourceReader<byte[], TopicSplit>, MqttConnection.Events {
    private static final Logger LOG = LoggerFactory.getLogger(MqttSourceReader.class);
    private static final CompletableFuture<Void> AVAILABLE =
            CompletableFuture.completedFuture(null);
    private static final int BATCH = 32; // records between two looks of the task at its mailbox
    private static final long LAST_WORD_MS = 1000;
    private static final int SHARE_OF_MEMORY = 8;
    private static final int LONGEST_MARK = 32;
    private static final Pattern MARK = Pattern.compile("[0-9a-f]{1," + LONGEST_MARK + "}");

    /** What one checkpoint covers: messages to acknowledge, numbers to announce. */
    private record Cut(
            long checkpoint,
            MqttConnection connection,
            long arrivals,
            TakenNumbers taken,
            String mark,
            long takenBytes) {}

    /** A message with several records, some of which were taken. */
    private record Opened(
            MqttConnection connection, boolean acknowledged, Frames records, Stamp.Many stamp) {}

    private final LinkConfig link;
    private final HandOver before;
    private final long mostOpenBytes;
    private final Counter recordsIn;
    private final Counter bytesIn;
    private final Counter repeats;
    private final Counter dropped;
    private final Counter unreadable;
    private final Counter sessionsLost;
    private final Counter connections;

    private final AtomicReference<CompletableFuture<Void>> waiting = new AtomicReference<>();
    private volatile Supervisor supervisor; // null: not started
    private boolean sessionLost; // of the network thread

    // for gauges, which other threads read: as of the last checkpoint
    private volatile long underWay;
    private volatile TakenNumbers lastSnapshot = new TakenNumbers();

    // of the task's thread only
    private boolean assigned; // the split
    private MqttConnection polled;
    private TakenNumbers taken = new TakenNumbers();
    private long arrivals; // acknowledgeable messages taken from this connection
    private long acknowledged; // of them
    private final ZstdDecompressor zstd = new ZstdDecompressor(); // its tables are large
    private Opened batch; // null: none
    private int batchAt; // how many of its records were taken
    private long takenBytes; // of records, and what each takes besides
    private long coveredBytes; // of them, in complete checkpoints
    private final ArrayList<Cut> cuts = new ArrayList<>(); // rising checkpoints
    private long announcedMessages = -1;
    private String announcedMark;
    private String mark; // the last one that was taken; null: none
    private CompletableFuture<?> announcement = AVAILABLE;

    /** @param before what the reader before this one has taken of the link */
    MqttSourceReader(LinkConfig link, HandOver before, SourceReaderMetricGroup metrics) {
        this(link, before, metrics, mostOpenBytes(link.delivery()));
    }

    /** @param mostOpenBytes so much is taken at most that no complete checkpoint has */
    MqttSourceReader(
            LinkConfig link,
            HandOver before,
            SourceReaderMetricGroup metrics,
            long mostOpenBytes) {
        this.link = link;
        this.before = before;
        this.mostOpenBytes = mostOpenBytes;
        this.recordsIn = metrics.getIOMetricGroup().getNumRecordsInCounter();
        this.bytesIn = metrics.getIOMetricGroup().getNumBytesInCounter();
        this.repeats = metrics.counter("repeatsDropped");
        this.dropped = metrics.counter("messagesDropped");
        this.unreadable = metrics.counter("batchesUnreadable");
        this.sessionsLost = metrics.counter("sessionsLost");
        this.connections = metrics.counter("connections");
        metrics.gauge("unacknowledged", () -> underWay);
        metrics.gauge("connected", () -> isConnected() ? 1 : 0);
        metrics.gauge("bytesWaiting", this::bytesWaiting);
        metrics.gauge("messagesTaken", () -> lastSnapshot.messages());
        metrics.gauge("messagesMissing", () -> lastSnapshot.missing());
        metrics.gauge("messagesLost", () -> lastSnapshot.lost());
        TaskClock.register(metrics);
    }

    /**
     * An exactly-once sink keeps in memory what comes between two checkpoints, and nothing but what
     * the job takes in bounds that. The Receive Maximum counts messages, of up to 10 000 records.
     */
    private static long mostOpenBytes(Delivery delivery) {
        return delivery == Delivery.EXACTLY_ONCE
                ? Runtime.getRuntime().maxMemory() / SHARE_OF_MEMORY
                : Long.MAX_VALUE;
    }

    /**
     * Connects. Who sees the task run may take it that messages are kept for it from then on: so
     * this waits for the subscription, but not for ever for a broker that is away.
     */
    @Override
    public void start() {
        supervisor = Supervisor.forReader(link, this);
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
        taken = splits.get(0).taken();
        taken.readOver(link.clientId());
        taken.takeOver(before);
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
        for (int i = 0; i < BATCH; i++) {
            if (isHeld()) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            if (batch != null) {
                takeNext(output);
                continue;
            }
            Object message = connection.poll();
            if (message == null) {
                connection.resumeIfDrained();
                return InputStatus.NOTHING_AVAILABLE;
            }
            take(connection, message, output);
        }
        connection.resumeIfDrained();
        return InputStatus.MORE_AVAILABLE;
    }

    private void take(MqttConnection connection, Object message, ReaderOutput<byte[]> output) {
        if (connection.isMark(message)) {
            takeMark(connection, message);
            return;
        }
        bytesIn.inc(connection.packetSizeOf(message));
        Parcel.Form form = connection.formOf(message);
        if (form != Parcel.Form.PLAIN) {
            open(connection, message, form);
            return;
        }
        recordsIn.inc();
        if (connection.isAcknowledged(message)) {
            arrivals++;
        }
        if (taken.take(connection.stampOf(message))) {
            give(connection.payloadOf(message), output);
        } else {
            repeats.inc();
        }
    }

    /** Anybody may publish there: what is no mark is left out, and acknowledged all the same. */
    private void takeMark(MqttConnection connection, Object message) {
        if (connection.isAcknowledged(message)) {
            arrivals++;
        }
        if (connection.sizeOf(message) <= LONGEST_MARK) {
            String said = new String(connection.payloadOf(message), StandardCharsets.ISO_8859_1);
            mark = MARK.matcher(said).matches() ? said : mark;
        }
    }

    private void give(byte[] record, ReaderOutput<byte[]> output) {
        takenBytes += record.length + ResendWindow.OVERHEAD_BYTES;
        output.collect(record);
    }

    /** Whether the job has all in hand that it may have until a checkpoint is complete. */
    private boolean isHeld() {
        return takenBytes - coveredBytes >= mostOpenBytes;
    }

    /** Its records follow one by one: other things may be done in between, checkpoints too. */
    private void open(MqttConnection connection, Object message, Parcel.Form form) {
        Stamp.Many stamp = Stamp.many(connection.stampOf(message));
        boolean acknowledged = connection.isAcknowledged(message);
        try {
            int count = stamp == null ? -1 : stamp.count();
            Frames records = Frames.of(form, connection.payloadOf(message), count, zstd);
            batch = new Opened(connection, acknowledged, records, stamp);
            batchAt = 0;
        } catch (IllegalArgumentException e) {
            if (unreadable.getCount() == 0) { // anybody may publish such things, as often as he likes
                LOG.error("{} has a message that is left out: {}", link, e.getMessage());
            }
            unreadable.inc();
            arrivals += acknowledged ? 1 : 0; // else it would come for ever
        }
    }

    private void takeNext(ReaderOutput<byte[]> output) {
        recordsIn.inc();
        Stamp.Many stamp = batch.stamp;
        byte[] record = batch.records.next();
        boolean isNew =
                stamp == null
                        ? taken.take(null)
                        : taken.take(stamp.series(), stamp.first() + batchAt);
        batchAt++;
        if (isNew) {
            give(record, output);
        } else {
            repeats.inc();
        }
        if (!batch.records.hasNext()) { // only now a checkpoint covers all of it
            arrivals += batch.acknowledged && batch.connection == polled ? 1 : 0;
            batch = null;
        }
    }

    /** What came over the old connection and is not acknowledged comes again over the new one. */
    private void switchTo(MqttConnection connection) {
        polled = connection;
        announcedMessages = -1; // the last announcement may have been lost with the old one
        arrivals = 0;
        acknowledged = 0;
    }

    @Override
    public CompletableFuture<Void> isAvailable() {
        if (hasMessages()) {
            return AVAILABLE;
        }
        CompletableFuture<Void> future = waiting.get();
        if (future == null) {
            future = new CompletableFuture<>();
            waiting.set(future);
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
                && (batch != null || (connection != null && connection.hasMessages()));
    }

    private void wake() {
        CompletableFuture<Void> future = waiting.getAndSet(null);
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
        TakenNumbers snapshot = taken.copy();
        lastSnapshot = snapshot;
        cuts.add(new Cut(checkpoint, polled, arrivals, snapshot, mark, takenBytes));
        underWay = arrivals - acknowledged;
        return List.of(new TopicSplit(snapshot, true));
    }

    @Override
    public void notifyCheckpointComplete(long checkpoint) {
        Cut last = null;
        for (Iterator<Cut> it = cuts.iterator(); it.hasNext(); ) {
            Cut cut = it.next();
            if (cut.checkpoint > checkpoint) {
                break;
            }
            last = cut;
            it.remove();
        }
        if (last != null) {
            coveredBytes = last.takenBytes;
            wake(); // it may go on
            if (last.connection == polled && polled != null) {
                acknowledged = last.arrivals;
                polled.acknowledgeUpTo(last.arrivals);
            } // else it is lost, and what came over it comes again
            announce(last);
        }
    }

    /** How many checkpoints are under way. */
    int openCheckpoints() {
        return cuts.size();
    }

    /** It will never complete; what it covers, a later one does. */
    @Override
    public void notifyCheckpointAborted(long checkpoint) {
        cuts.removeIf(cut -> cut.checkpoint == checkpoint);
    }

    /** Tells the world, for good, what will never be asked for again. */
    private void announce(Cut cut) {
        if (announcement.isCompletedExceptionally()) {
            announcedMessages = -1;
        }
        boolean said =
                cut.taken.messages() == announcedMessages
                        && Objects.equals(cut.mark, announcedMark);
        if (said || polled == null || !polled.isReady()) {
            return;
        }
        announcedMessages = cut.taken.messages();
        announcedMark = cut.mark;
        String json = cut.taken.toJson(System.currentTimeMillis(), cut.checkpoint, cut.mark);
        announcement =
                polled.publishRetained(
                        "speck/taken/" + link.clientId(), json.getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public void notifyNoMoreSplits() {}

    @Override
    public void close() {
        if (supervisor == null) {
            return;
        }
        if (polled != null && polled.isReady()) {
            try {
                announcement.get(LAST_WORD_MS, TimeUnit.MILLISECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            } catch (Exception e) {
                LOG.debug("the last announcement of {} may be missing", link, e);
            }
        }
        supervisor.close();
    }

    // ---- on the network thread

    @Override
    public void ready(MqttConnection connection, boolean sessionPresent, int sendMaximum) {
        connections.inc();
        if (sessionLost) {
            sessionLost = false;
            connection.publish(
                    MqttConnection.READERS + link.topic(),
                    MqttConnection.AGAIN.getBytes(StandardCharsets.UTF_8),
                    false);
        }
        wake(); // to announce over this connection what was announced over the last
    }

    @Override
    public void admitted(MqttConnection connection, boolean sessionPresent) {
        // also at the first start: the session is reserved before, and may be lost since then
        if (!sessionPresent && link.delivery().acknowledged()) {
            sessionsLost.inc();
            sessionLost = true;
            LOG.error(
                    "the session {} at {} is lost: of messages that waited in it, those come again"
                            + " that their sinks still have",
                    link.clientId(),
                    link);
        }
    }

    @Override
    public void arrived(MqttConnection connection) {
        dropped.inc(connection.takeOverflow());
        wake();
    }

    @Override
    public void settled(MqttConnection connection) {}

    @Override
    public void ended(MqttConnection connection, Throwable cause) {}

    private long bytesWaiting() {
        MqttConnection connection = current();
        return connection == null ? 0 : connection.waitingBytes();
    }

    private MqttConnection current() {
        return supervisor == null ? null : supervisor.current();
    }

    private boolean isConnected() {
        MqttConnection connection = current();
        return connection != null && connection.isReady();
    }
}
