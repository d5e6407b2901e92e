package io.speck.link.source;

import io.airlift.compress.zstd.ZstdDecompressor;
import io.speck.link.metrics.LinkCounter;
import io.speck.link.metrics.LinkMetrics;
import io.speck.link.protocol.BatchReader;
import io.speck.link.protocol.HandOver;
import io.speck.link.protocol.LogPosition;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.ReaderState;
import io.speck.link.protocol.Stamp;
import io.speck.link.protocol.TakenNumbers;
import io.speck.link.protocol.Until;
import io.speck.link.transport.IncomingMessages;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.ReaderConnection;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Makes records of messages: opens batches, drops repeats, and counts. Of the task's thread only.
 *
 * <p>The control plane may send a mark through the session, behind all that waits in it. It is no
 * record: the announcement of the first checkpoint that covers all that came before it names it.
 *
 * <p>What is beyond the numbers to read is left: from the first such message on nothing is
 * acknowledged, so all of it comes again at the next start, and what was taken of it is dropped
 * then.
 */
final class RecordIntake {
    private static final Logger LOG = LoggerFactory.getLogger(RecordIntake.class);
    private static final int MAX_MARK_LENGTH = 32;
    private static final Pattern MARK = Pattern.compile("[0-9a-f]{1," + MAX_MARK_LENGTH + "}");

    /** A batch of which some records were taken. */
    private record OpenBatch(
            ReaderConnection connection,
            boolean acknowledged,
            BatchReader records,
            Stamp.OfBatch stamp) {}

    private final LinkConfig link;
    private final Until until;
    private final LinkCounter recordsIn;
    private final LinkCounter bytesIn;
    private final LinkCounter repeats;
    private final LinkCounter unreadable;

    private final ZstdDecompressor zstd = new ZstdDecompressor(); // its tables are large
    private TakenNumbers taken = new TakenNumbers();
    private LogPosition position = LogPosition.NONE;
    private ReaderConnection connection; // null: none yet
    private long arrivals; // acknowledgeable messages taken from it
    private boolean leaving; // something of this connection was left
    private OpenBatch batch; // null: none
    private int batchPosition; // how many of its records were taken
    private long takenBytes;
    private String mark;

    RecordIntake(LinkConfig link, Until until, LinkMetrics metrics) {
        this.link = link;
        this.until = until;
        this.recordsIn = metrics.records();
        this.bytesIn = metrics.bytes();
        this.repeats = metrics.counter("repeatsDropped");
        this.unreadable = metrics.counter("batchesUnreadable");
    }

    /** Goes on from the numbers of a state, and from those of the previous reader of the link. */
    void restore(ReaderState state, HandOver handOver) {
        taken = state.taken();
        position = taken.isOf(link.clientId()) ? state.position() : LogPosition.NONE;
        taken.useLink(link.clientId());
        taken.takeOver(handOver);
    }

    /** What came over the old connection and is not acknowledged comes again over the new one. */
    void startOver(ReaderConnection next) {
        updatePosition();
        connection = next;
        arrivals = 0;
        leaving = false;
    }

    /** Returns what a checkpoint that begins now covers. */
    PendingCheckpoints.Coverage snapshot(long checkpoint) {
        updatePosition();
        return new PendingCheckpoints.Coverage(
                checkpoint, connection, arrivals, taken.copy(), position, mark, takenBytes);
    }

    /** Until a connection knows better it is where the state, or the last connection, has ended. */
    private void updatePosition() {
        LogPosition now = connection == null ? null : connection.position(arrivals);
        position = now == null ? position : now;
    }

    /** Returns the size of all records taken, and what each takes besides. */
    long takenBytes() {
        return takenBytes;
    }

    /** Whether records of a batch are left, to be taken with {@link #takeNextOfBatch}. */
    boolean hasOpenBatch() {
        return batch != null;
    }

    /** Takes a message of the present connection. */
    void take(Object message, Consumer<byte[]> output) {
        IncomingMessages messages = connection.messages();
        if (messages.isMark(message)) {
            takeMark(message, messages);
            return;
        }
        bytesIn.inc(messages.packetSizeOf(message));
        Message.Format format = messages.formatOf(message);
        if (format != Message.Format.PLAIN) {
            open(message, format, messages);
            return;
        }
        String stamp = messages.stampOf(message);
        if (!until.isEver() && leaves(!until.includes(stamp, !leaving))) {
            return;
        }
        recordsIn.inc();
        count(messages.isAcknowledged(message));
        if (taken.take(stamp)) {
            emit(messages.payloadOf(message), output);
        } else {
            repeats.inc();
        }
    }

    /** Anybody may publish there: what is no mark is left out, and acknowledged all the same. */
    private void takeMark(Object message, IncomingMessages messages) {
        count(messages.isAcknowledged(message));
        if (messages.sizeOf(message) <= MAX_MARK_LENGTH) {
            String text = new String(messages.payloadOf(message), StandardCharsets.ISO_8859_1);
            mark = MARK.matcher(text).matches() ? text : mark;
        }
    }

    /** Its records follow one by one: other things may be done in between, checkpoints too. */
    private void open(Object message, Message.Format format, IncomingMessages messages) {
        Stamp.OfBatch stamp = Stamp.parseBatch(messages.stampOf(message));
        boolean acknowledged = messages.isAcknowledged(message);
        try {
            int count = stamp == null ? -1 : stamp.count();
            BatchReader records =
                    BatchReader.open(format, messages.payloadOf(message), count, zstd);
            batch = new OpenBatch(connection, acknowledged, records, stamp);
            batchPosition = 0;
        } catch (IllegalArgumentException e) {
            if (unreadable.getCount() == 0) { // anybody may publish such things, again and again
                LOG.error("{} has a message that is left out: {}", link, e.getMessage());
            }
            unreadable.inc();
            count(acknowledged); // else it would come for ever
        }
    }

    void takeNextOfBatch(Consumer<byte[]> output) {
        Stamp.OfBatch stamp = batch.stamp;
        byte[] record = batch.records.next();
        long number = stamp == null ? 0 : stamp.first() + batchPosition;
        batchPosition++;
        boolean isIncluded =
                until.isEver()
                        || (stamp == null ? !leaving : until.includes(stamp.prefix(), number));
        if (!leaves(!isIncluded)) {
            recordsIn.inc();
            if (stamp == null ? taken.take(null) : taken.take(stamp.prefix(), number)) {
                emit(record, output);
            } else {
                repeats.inc();
            }
        }
        if (!batch.records.hasNext()) { // only now a checkpoint covers all of it
            count(batch.acknowledged && batch.connection == connection);
            batch = null;
        }
    }

    private boolean leaves(boolean isBeyond) {
        leaving |= isBeyond;
        return isBeyond;
    }

    /** Acknowledgements go in the order of arrival: nothing after what is left. */
    private void count(boolean acknowledged) {
        arrivals += acknowledged && !leaving ? 1 : 0;
    }

    private void emit(byte[] record, Consumer<byte[]> output) {
        takenBytes += record.length + Message.OVERHEAD_BYTES;
        output.accept(record);
    }
}
