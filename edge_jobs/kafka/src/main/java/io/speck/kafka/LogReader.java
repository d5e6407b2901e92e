package io.speck.kafka;

import io.speck.link.protocol.LogPosition;
import io.speck.link.transport.Inbox;
import io.speck.link.transport.IncomingMessages;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.ReaderConnection;
import io.speck.link.transport.ReaderListener;
import io.speck.link.transport.ReadingRange;
import io.speck.link.transport.TakenReport;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads all partitions of a topic. The connection's thread polls the broker and commits; the task's
 * takes what waits in the inbox.
 */
final class LogReader extends LogConnection implements ReaderConnection {
    private static final Logger LOG = LoggerFactory.getLogger(LogReader.class);
    private static final Duration POLL = Duration.ofMillis(250);
    private static final Duration CLOSE = Duration.ofSeconds(2);
    private static final long LOOK_NS = 1_000_000_000L;
    private static final long LOOK_FOR_PARTITIONS_NS = 30 * LOOK_NS;
    private static final long COMMIT_AGAIN_NS = 600 * LOOK_NS; // brokers forget old places

    /** A place to commit, and what waits for it. */
    private record Commit(
            Map<TopicPartition, OffsetAndMetadata> places, CompletableFuture<Void> done) {}

    private final LinkConfig link;
    private final ReadingRange range;
    private final Progress progress;
    private final ReaderListener listener;
    private final Inbox inbox;
    private final AtomicReference<Commit> toCommit = new AtomicReference<>();

    // set once by the connection's thread, before the task's sees the connection ready
    private volatile LinkTopic topic;
    private volatile Progress.Places places;

    /** Offsets before which the inbox has had everything, while there was nothing more to read. */
    private volatile long[] idleAt = new long[0];

    // of the connection's thread
    private KafkaConsumer<byte[], byte[]> consumer;
    private List<TopicPartition> partitions;
    private long[] endAt;
    private boolean placeKept;
    private volatile boolean paused;
    private long lookedNs;
    private long lookedForPartitionsNs;
    private long committedNs;
    private Commit lastCommit;

    // of the task's thread
    private ConsumerRecord<byte[], byte[]> lastPolled;
    private long polledCount;

    LogReader(
            LinkConfig link,
            ReadingRange range,
            Progress progress,
            ReaderListener listener,
            Watch watch) {
        super(watch);
        this.link = link;
        this.range = range;
        this.progress = progress;
        this.listener = listener;
        this.inbox = new Inbox(link.window());
    }

    // ---- the connection's thread

    @Override
    void open() {
        topic = LinkTopic.findOrCreate(link);
        partitions =
                IntStream.range(0, topic.partitions())
                        .mapToObj(partition -> new TopicPartition(topic.name(), partition))
                        .toList();
        consumer = new KafkaConsumer<>(ClientSettings.ofConsumer(link, true));
        consumer.assign(partitions);
        LogStart start = new LogStart(link, topic, range, progress, consumer, partitions);
        List<OffsetAndMetadata> starts = partitions.stream().map(start::find).toList();
        for (TopicPartition partition : partitions) {
            consumer.seek(partition, starts.get(partition.partition()));
        }
        endAt = partitions.stream().mapToLong(this::findEnd).toArray();
        placeKept = start.isPlaceKept();
        places = progress.begin(topic, starts);
        if (!placeKept) { // from now on the broker keeps what comes for this reader
            Map<TopicPartition, OffsetAndMetadata> first = new HashMap<>();
            partitions.forEach(it -> first.put(it, starts.get(it.partition())));
            consumer.commitSync(first);
        }
        lookedForPartitionsNs = System.nanoTime();
        committedNs = System.nanoTime();
    }

    private long findEnd(TopicPartition partition) {
        return range.until().isEver()
                ? Long.MAX_VALUE
                : range.until().findPosition(topic.series(partition.partition()), 0);
    }

    @Override
    void reportReady() {
        listener.onAdmitted(this, placeKept);
        listener.onReady(this, placeKept);
    }

    @Override
    void serve() {
        while (!isLeaving()) {
            try {
                commitIfAsked();
                resumeOrPause();
                take(consumer.poll(POLL));
                look();
            } catch (WakeupException e) {
                continue; // there is something else to do
            } catch (OffsetOutOfRangeException e) { // the next connection begins elsewhere
                LOG.error("{} does not have what {} was to read", link, link.clientId(), e);
                progress.goBack(e);
                throw e;
            }
        }
    }

    private void take(ConsumerRecords<byte[], byte[]> records) {
        if (records.isEmpty()) {
            noteIdle();
            return;
        }
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.offset() < endAt[record.partition()]) {
                inbox.add(record, Math.max(0, record.serializedValueSize()));
            } // else it is for the next start
        }
        listener.onMessages(this);
    }

    /** Markers of transactions take offsets, too: the position may be past the last record. */
    private void noteIdle() {
        long[] positions = new long[partitions.size()];
        for (TopicPartition partition : partitions) {
            int i = partition.partition();
            positions[i] = Math.min(endAt[i], consumer.position(partition));
        }
        idleAt = positions;
    }

    private void resumeOrPause() {
        if (!paused && inbox.isFull()) {
            consumer.pause(partitions);
            paused = true;
        } else if (paused && inbox.isHalfEmpty()) {
            consumer.resume(partitions);
            paused = false;
        }
    }

    private void commitIfAsked() {
        Commit next = toCommit.getAndSet(null);
        boolean isOld = System.nanoTime() - committedNs > COMMIT_AGAIN_NS;
        if (next == null && isOld && lastCommit != null) {
            next = lastCommit;
        }
        if (next == null) {
            return;
        }
        committedNs = System.nanoTime();
        lastCommit = next;
        CompletableFuture<Void> done = next.done;
        consumer.commitAsync(
                next.places,
                (committed, problem) -> {
                    if (problem == null) {
                        done.complete(null);
                    } else {
                        done.completeExceptionally(problem);
                    }
                });
    }

    private void look() {
        long now = System.nanoTime();
        if (now - lookedNs < LOOK_NS) {
            return;
        }
        lookedNs = now;
        checkConnected(consumer.metrics());
        if (now - lookedForPartitionsNs > LOOK_FOR_PARTITIONS_NS) {
            lookedForPartitionsNs = now;
            if (consumer.partitionsFor(topic.name()).size() != topic.partitions()) {
                throw new KafkaException("the topic has other partitions now");
            }
        }
    }

    @Override
    void release() {
        if (consumer == null) {
            return;
        }
        Commit last = toCommit.getAndSet(null);
        try {
            if (last != null && isLeaving()) {
                commitNow(last);
            }
        } catch (KafkaException e) { // what it covers comes again, and is recognised
            last.done.completeExceptionally(e);
        } finally {
            consumer.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(CLOSE));
        }
        if (last != null && !last.done.isDone()) {
            last.done.completeExceptionally(new KafkaException("the connection has ended"));
        }
    }

    private void commitNow(Commit last) {
        try {
            consumer.commitSync(last.places, CLOSE);
        } catch (WakeupException e) { // it was to end the polling
            consumer.commitSync(last.places, CLOSE);
        }
        last.done.complete(null);
    }

    @Override
    void reportEnd(RuntimeException cause) {}

    @Override
    void wake() {
        KafkaConsumer<byte[], byte[]> polling = consumer;
        if (polling != null) {
            polling.wakeup();
        }
    }

    // ---- the task's thread

    @Override
    public Object poll() {
        Object message;
        while (!isEnded() && (message = inbox.poll()) != null) {
            ConsumerRecord<byte[], byte[]> record = LogMessages.recordOf(message);
            inbox.release(Math.max(0, record.serializedValueSize()));
            if (record.offset() >= places.next().get(record.partition())) {
                places.goTo(record.partition(), record.offset() + 1, record.leaderEpoch());
                lastPolled = record;
                polledCount++;
                return record;
            } // else the connection before has brought it
        }
        return null;
    }

    @Override
    public boolean hasMessages() {
        return !isEnded() && !inbox.isEmpty();
    }

    @Override
    public long waitingBytes() {
        return inbox.waitingBytes();
    }

    @Override
    public IncomingMessages messages() {
        return LogMessages.INSTANCE;
    }

    @Override
    public void resumeIfDrained() {
        if (paused && inbox.isHalfEmpty()) {
            wake();
        }
    }

    /** The report of what was taken does it. */
    @Override
    public void acknowledgeUpTo(long count) {}

    @Override
    public LogPosition position(long count) {
        if (places == null) {
            return null;
        }
        long[] idle = idleAt; // before looking at the inbox: see there
        boolean drained = count == polledCount && inbox.isEmpty();
        Map<String, Long> offsets = new HashMap<>();
        Map<String, Integer> terms = new HashMap<>();
        for (int i = 0; i < topic.partitions(); i++) {
            OffsetAndMetadata next = places.find(i);
            boolean isPast = drained && i < idle.length && idle[i] > next.offset();
            String series = topic.series(i);
            offsets.put(series, isPast ? idle[i] : next.offset());
            if (!isPast) { // a marker may be of a later term than the last record
                next.leaderEpoch().ifPresent(term -> terms.put(series, term));
            }
        }
        if (count != polledCount && lastPolled != null) { // that one is not done with
            offsets.put(topic.series(lastPolled.partition()), lastPolled.offset());
        }
        return new LogPosition(offsets, terms);
    }

    @Override
    public long takeOverflow() {
        return 0;
    }

    @Override
    public CompletableFuture<?> reportTaken(TakenReport report) {
        Map<TopicPartition, OffsetAndMetadata> covered = new HashMap<>();
        String metadata = TakenMetadata.write(report, topic.id());
        for (TopicPartition partition : partitions) {
            String series = topic.series(partition.partition());
            Long offset = report.position().offsets().get(series);
            if (offset != null) {
                Integer term = report.position().terms().get(series);
                Optional<Integer> known = Optional.ofNullable(term);
                covered.put(partition, new OffsetAndMetadata(offset, known, metadata));
            }
        }
        CompletableFuture<Void> done = new CompletableFuture<>();
        Commit former = toCommit.getAndSet(new Commit(covered, done));
        if (former != null) { // this one covers it
            done.whenComplete((nothing, problem) -> former.done.complete(null));
        }
        wake();
        return done;
    }

    /** The place was made when it was missing; writers to a log wait for nobody. */
    @Override
    public void announceSession(boolean resends) {}
}
