package io.speck.kafka;

import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SeenNumbers;
import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.Stamp;
import io.speck.link.transport.Guilt;
import io.speck.link.transport.InFlightMessages;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.OutgoingMessage.Outcome;
import io.speck.link.transport.OutgoingMessage;
import io.speck.link.transport.WriterConnection;
import io.speck.link.transport.WriterListener;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.utils.Utils;

/**
 * Writes to one partition of a topic, in order. The producer's thread reports the outcomes; the
 * connection's looks whether there is a broker.
 */
final class LogWriter extends LogConnection implements WriterConnection {
    private static final Duration CLOSE = Duration.ofSeconds(2);
    private static final long LOOK_MS = 1000;
    private static final int BATCH_BYTES = 61; // what is around the records of a batch
    private static final int RECORD_BYTES = 40; // and around a record, with its header, at most

    private final LinkConfig link;
    private final WriterListener listener;
    private final InFlightMessages inFlight = new InFlightMessages(); // locked but for adding
    private KafkaProducer<byte[], byte[]> producer;
    private TopicPartition partition;
    private final OutcomeWatch outcomes =
            new OutcomeWatch(Duration.ofMillis(ClientSettings.LONGEST_DELIVERY_MS));
    private long lastOffset = -1; // of the producer's thread
    private volatile RuntimeException broken; // null: it is not
    private volatile long sent; // by the sending thread
    private volatile long settled;
    private volatile int maxPayload = Integer.MAX_VALUE;

    LogWriter(LinkConfig link, WriterListener listener, Watch watch) {
        super(watch);
        this.link = link;
        this.listener = listener;
    }

    // ---- the connection's thread

    @Override
    void open() {
        LinkTopic topic = LinkTopic.findOrCreate(link);
        partition = new TopicPartition(topic.name(), choosePartition(topic.partitions()));
        maxPayload = topic.maxMessageBytes() - BATCH_BYTES - RECORD_BYTES;
        producer = new KafkaProducer<>(ClientSettings.ofProducer(link));
        producer.partitionsFor(topic.name()); // nothing has to wait for it then
        SentNumber doubtful = listener.oldestDoubtful();
        if (doubtful != null) {
            SeenNumbers seen = LogTail.read(link, partition, doubtful);
            if (!seen.isEmpty()) {
                listener.onConfirmed(this, seen);
            }
        }
    }

    /** All records of a job go to one: they are in order. */
    private int choosePartition(int count) {
        byte[] name = Stamp.producerOfSink(link.clientId()).getBytes(StandardCharsets.UTF_8);
        return Utils.toPositive(Utils.murmur2(name)) % count;
    }

    @Override
    void reportReady() {
        listener.onReady(this, link.window());
    }

    @Override
    synchronized void serve() {
        while (!isLeaving()) {
            if (broken != null) {
                throw broken;
            }
            checkConnected(producer.metrics());
            if (outcomes.isStuck(sent, settled, System.nanoTime())) {
                throw new KafkaException("the producer has no outcome for what was sent");
            }
            try {
                wait(LOOK_MS);
            } catch (InterruptedException e) {
                throw new KafkaException(e);
            }
        }
    }

    @Override
    void release() {
        if (producer != null) {
            producer.close(isLeaving() ? CLOSE : Duration.ZERO);
        }
    }

    @Override
    void reportEnd(RuntimeException cause) {
        listener.onEnd(this, cause);
    }

    @Override
    synchronized void wake() {
        notifyAll();
    }

    /** What is in flight will be sent again over the next connection: its outcome here is nothing. */
    @Override
    void markEnded() {
        synchronized (inFlight) {
            super.markEnded();
        }
    }

    private void breakOff(RuntimeException cause) {
        broken = cause;
        wake();
    }

    // ---- the sending thread

    @Override
    public int send(OutgoingMessage message) {
        byte[] payload = message.message().payload();
        byte[] stamp =
                message.epoch() == null
                        ? null
                        : message.stamp().getBytes(StandardCharsets.UTF_8);
        ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(partition.topic(), partition.partition(), null, payload);
        if (stamp != null) {
            record.headers().add(Stamp.PROPERTY, stamp);
        }
        message.setPacket(record);
        inFlight.add(message);
        sent = sent + 1;
        try {
            producer.send(record, (metadata, problem) -> onOutcome(record, metadata, problem));
        } catch (RuntimeException e) {
            breakOff(e);
        }
        return RECORD_BYTES + payload.length + (stamp == null ? 0 : stamp.length);
    }

    @Override
    public long settledCount() {
        return settled;
    }

    @Override
    public int maxPayload(ProducerEpoch epoch) {
        return maxPayload - (epoch == null ? 0 : epoch.maxStampBytes());
    }

    @Override
    public boolean takesBatches() {
        return false; // the producer makes its own
    }

    @Override
    public void noteTooLarge(OutgoingMessage message) {
        int stamp = message.epoch() == null ? 0 : message.epoch().maxStampBytes();
        maxPayload = Math.min(maxPayload, message.payloadBytes() + stamp - 1);
    }

    @Override
    public Guilt guilt() {
        return Guilt.NONE;
    }

    /** What a writer has sent lies in the log. */
    @Override
    public CompletableFuture<String> reportSent(byte[] json) {
        return CompletableFuture.completedFuture(null);
    }

    // ---- the producer's thread, or the sending one for what it refuses by itself

    /** What is thrown here the producer would only log; after an Error its thread ends. */
    private void onOutcome(
            ProducerRecord<byte[], byte[]> record, RecordMetadata metadata, Exception problem) {
        try {
            settle(record, metadata, problem);
        } catch (Throwable e) {
            breakOff(asException(e));
        }
    }

    private void settle(
            ProducerRecord<byte[], byte[]> record, RecordMetadata metadata, Exception problem) {
        Outcome outcome = problem == null ? Outcome.DELIVERED : outcomeOf(problem);
        synchronized (inFlight) {
            if (isEnded()) {
                return;
            }
            if (outcome == Outcome.CUT_OFF) {
                breakOff(new KafkaException(problem.getMessage(), problem));
                return;
            }
            String why = problem == null ? null : problem.getMessage();
            if (!inFlight.settle(record, outcome, why)) {
                inFlight.settleUnsent(record, outcome, why);
            }
            settled = inFlight.settledCount();
            if (problem == null && metadata.hasOffset()) {
                noteOffset(metadata.offset());
            }
        }
        listener.onOutcomes(this);
    }

    /** A log that has become shorter has lost what it had acknowledged: it is to be sent again. */
    private void noteOffset(long offset) {
        if (offset <= lastOffset) {
            breakOff(
                    new KafkaException(
                            "the log was cut, or made anew: offset %d comes after %d"
                                    .formatted(offset, lastOffset)));
        }
        lastOffset = offset;
    }

    private static Outcome outcomeOf(Exception problem) {
        if (problem instanceof RecordTooLargeException) {
            return Outcome.TOO_LARGE;
        }
        boolean isRefusal =
                problem instanceof AuthorizationException
                        || problem instanceof PolicyViolationException
                        || problem instanceof InvalidTopicException
                        || problem instanceof UnknownTopicOrPartitionException
                        || problem instanceof org.apache.kafka.common.InvalidRecordException;
        return isRefusal ? Outcome.REFUSED : Outcome.CUT_OFF;
    }
}
