package io.speck.mqtt;

import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5PubAckException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.groups.SinkWriterMetricGroup;
import org.apache.flink.util.function.ThrowingRunnable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The writing half of a link.
 *
 * <p>At most a window of records is under way; when it is full the task yields to its mailbox. A
 * record leaves the window when the broker has taken it. After a loss of the connection all that
 * are left are sent again, in order and under the same numbers. A record that the broker refuses,
 * or that nobody has subscribed to although the link is said to have readers, stops the sending of
 * new ones: when all before have an outcome, the refused are tried again, the first alone, with a
 * growing pause, and then the rest in order.
 *
 * <p>All but the callbacks of {@link MqttConnection.Events} runs on the task's thread.
 */
final class MqttSinkWriter
        implements StatefulSinkWriter<byte[], MqttSink.State>, MqttConnection.Events {
    private static final Logger LOG = LoggerFactory.getLogger(MqttSinkWriter.class);
    private static final long FIRST_PAUSE_MS = 50;
    private static final long LONGEST_PAUSE_MS = 2000;
    private static final long LAST_WORD_MS = 1000;
    private static final long NEVER = Long.MAX_VALUE;

    /** How much may wait for the broker, however many records the window allows. */
    static final long MOST_PENDING_BYTES = 16 << 20;

    private final LinkConfig link;
    private final long epoch;
    private final String producer;
    private final int mostBytes;
    private final MailboxExecutor mailbox;
    private final Supervisor supervisor;
    private final Counter recordsSent;
    private final Counter bytesSent;
    private final Counter failures;
    private final Counter resent;
    private final Counter refusals;
    private final Counter undeliverable;
    private final Counter connections;

    /** The number of settled records at which the network thread is to wake the task. */
    private volatile long wakeAt = NEVER;

    private volatile int window;
    private volatile MqttConnection lastReady;

    /** As the job was told at its start, until the broker says otherwise. */
    private volatile boolean hasReaders;

    private MqttConnection connection; // the one that `sent` went to; null: none yet
    private long reaped; // of this connection
    private final ArrayDeque<OutRecord> sent = new ArrayDeque<>();
    private final ArrayDeque<OutRecord> refused = new ArrayDeque<>();
    private final ArrayDeque<OutRecord> waiting = new ArrayDeque<>();
    private boolean holding; // new records wait until the refused have gone
    private boolean retryPlanned;
    private long pauseMs = FIRST_PAUSE_MS;
    private long pendingBytes;
    private long number;
    private long announced; // the number in the last announcement over this connection
    private long confirmed; // the last number whose announcement a broker has taken
    private CompletableFuture<?> announcement = CompletableFuture.completedFuture(null);

    MqttSinkWriter(
            LinkConfig link,
            long epoch,
            boolean hasReaders,
            int mostBytes,
            MailboxExecutor mailbox,
            SinkWriterMetricGroup metrics) {
        this.link = link;
        this.epoch = epoch;
        this.producer = Stamp.producerOf(link.clientId().replaceFirst("-out$", ""));
        this.mostBytes = mostBytes;
        this.mailbox = mailbox;
        this.window = link.window();
        this.hasReaders = hasReaders;
        this.recordsSent = metrics.getNumRecordsSendCounter();
        this.bytesSent = metrics.getNumBytesSendCounter();
        this.failures = metrics.getNumRecordsSendErrorsCounter();
        this.resent = metrics.counter("recordsResent");
        this.refusals = metrics.counter("recordsRefused");
        this.undeliverable = metrics.counter("recordsUndeliverable");
        this.connections = metrics.counter("connections");
        String prefix = Stamp.prefix(producer, epoch);
        this.supervisor = Supervisor.forWriter(link, prefix, this);
        metrics.gauge("window", () -> window);
        metrics.gauge("connected", () -> supervisor.current().isReady() ? 1 : 0);
        supervisor.start();
    }

    @Override
    public void write(byte[] payload, Context context) throws InterruptedException, IOException {
        progress();
        if (payload.length > mostBytes) {
            giveUp(payload.length, "it is larger than --max-record-bytes");
            return;
        }
        while (pending() >= window || pendingBytes >= MOST_PENDING_BYTES) {
            await(Math.max(1, sent.size() / 4));
            progress();
        }
        MqttConnection known = lastReady;
        if (known != null && !known.fits(payload.length)) { // before it has a number
            giveUp(payload.length, "it is larger than the broker's Maximum Packet Size allows");
            return;
        }
        OutRecord record = new OutRecord(++number, payload);
        pendingBytes += payload.length;
        recordsSent.inc();
        bytesSent.inc(payload.length);
        if (canSend()) {
            send(record);
        } else {
            waiting.add(record);
        }
    }

    /** Returns when the broker has taken everything, and that this is so. */
    @Override
    public void flush(boolean endOfInput) throws InterruptedException, IOException {
        progress();
        while (pending() > 0 || !announce()) {
            await(sent.size());
            progress();
        }
    }

    @Override
    public List<MqttSink.State> snapshotState(long checkpoint) {
        return List.of(new MqttSink.State(epoch, number));
    }

    @Override
    public void close() {
        if (connection != null && connection.isReady()) {
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

    private int pending() {
        return sent.size() + refused.size() + waiting.size();
    }

    private boolean canSend() {
        return !holding && waiting.isEmpty() && connection != null && connection.isReady();
    }

    private void send(OutRecord record) {
        if (!connection.fits(record.payload.length)) { // numbered before this was known
            giveUp(record, "it is larger than the broker's Maximum Packet Size allows");
            return;
        }
        sent.add(record);
        connection.send(record);
    }

    /** Takes note of what has happened on the network since, and goes on from there. */
    private void progress() {
        catchUp();
        if (holding && sent.isEmpty() && !retryPlanned) {
            planRetry();
        }
        while (!holding && !waiting.isEmpty() && connection.isReady() && sent.size() < window) {
            send(waiting.poll());
        }
    }

    private void catchUp() {
        reap();
        MqttConnection current = supervisor.current();
        if (current != connection || (connection.isEnded() && !sent.isEmpty())) {
            startOver(current);
        }
    }

    private void reap() {
        OutRecord record;
        while ((record = sent.peek()) != null && record.outcome != OutRecord.UNDER_WAY) {
            switch (record.outcome) {
                case OutRecord.CUT_OFF -> {
                    return; // and so are all behind it
                }
                case OutRecord.REFUSED -> refuse(record);
                case OutRecord.UNREAD -> {
                    if (hasReaders) {
                        record.problem = "nobody has subscribed to it";
                        refuse(record);
                    } else {
                        accepted(record);
                    }
                }
                case OutRecord.UNDELIVERABLE -> giveUp(record, record.problem);
                default -> accepted(record);
            }
            sent.poll();
            reaped++;
        }
    }

    private void accepted(OutRecord record) {
        pendingBytes -= record.payload.length;
        if (holding && refused.isEmpty()) { // the one that was tried alone
            LOG.info("{} takes records again", link);
            holding = false;
            pauseMs = FIRST_PAUSE_MS;
        }
    }

    private void refuse(OutRecord record) {
        if (!holding) {
            LOG.warn("{} does not take record {}: {}; holding", link, record.number, record.problem);
        }
        holding = true;
        refusals.inc();
        refused.add(record);
    }

    /** Without this one record would hold all behind it for ever. */
    private void giveUp(OutRecord record, String problem) {
        pendingBytes -= record.payload.length;
        giveUp(record.payload.length, problem);
    }

    private void giveUp(int bytes, String problem) {
        LOG.error("cannot publish a record of {} bytes to {}: {}; it is left out", bytes, link, problem);
        undeliverable.inc();
        failures.inc();
    }

    /** A new connection knows nothing of what the old one was given. */
    private void startOver(MqttConnection current) {
        if (link.delivery().acknowledged()) {
            resent.inc(sent.size());
            while (!sent.isEmpty()) {
                waiting.addFirst(sent.pollLast());
            }
        } else {
            failures.inc(sent.size()); // at most once: what was on the wire stays there
            sent.forEach(record -> pendingBytes -= record.payload.length);
            sent.clear();
        }
        takeBackRefused();
        holding = false;
        announced = 0; // a broker that was killed may have forgotten it
        reaped = 0;
        connection = current;
    }

    private void takeBackRefused() {
        while (!refused.isEmpty()) {
            waiting.addFirst(refused.pollLast());
        }
    }

    private void planRetry() {
        retryPlanned = true;
        supervisor.later(pauseMs, () -> mail(this::retryAfterPause));
        pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
    }

    private void retryAfterPause() {
        retryPlanned = false;
        retry();
    }

    /** Tries the first of the refused again. */
    private void retry() {
        catchUp();
        if (holding && sent.isEmpty() && connection.isReady()) {
            takeBackRefused();
            if (waiting.isEmpty()) { // the one that was tried could not be sent at all
                holding = false;
            } else {
                wakeAt = reaped + 1;
                send(waiting.poll());
            }
        }
        progress();
    }

    /** Lets the task do other things until some records more are settled, or something happens. */
    private void await(int more) throws InterruptedException {
        MqttConnection watched = connection;
        if (watched != null && more > 0) {
            wakeAt = reaped + more;
            if (watched.settled >= reaped + more || watched.isEnded()) {
                wakeAt = NEVER;
                return;
            }
        }
        mailbox.yield();
        wakeAt = NEVER;
    }

    /**
     * Tells the world up to which number everything is out.
     *
     * @return whether the broker has taken that, if only over an earlier connection; if not, the
     *     task is woken when it has, or when that can be tried again
     */
    private boolean announce() {
        if (number == 0 || (connection != null && !connection.isNumbered())) {
            return true;
        }
        if (number == announced || connection == null || !connection.isReady()) {
            return number == confirmed;
        }
        announced = number;
        String json =
                "{\"v\":1,\"at\":%d,\"producer\":%s,\"epoch\":%d,\"number\":%d}"
                        .formatted(
                                System.currentTimeMillis(), Json.quoted(producer), epoch, number);
        long upTo = number;
        announcement =
                connection.publishRetained(
                        MqttConnection.SENT + link.clientId(),
                        json.getBytes(StandardCharsets.UTF_8));
        announcement.whenComplete((taken, problem) -> mail(() -> confirm(upTo, problem)));
        return number == confirmed;
    }

    /** Any other problem than a refusal is the end of the connection: done again over the next. */
    private void confirm(long upTo, Throwable problem) {
        if (problem == null || isRefusal(problem)) {
            if (problem != null) {
                LOG.warn("cannot announce what was sent to {}", link, problem);
            }
            confirmed = upTo;
        }
        progress();
    }

    private static boolean isRefusal(Throwable problem) {
        Throwable cause = problem instanceof CompletionException ? problem.getCause() : problem;
        return cause instanceof Mqtt5PubAckException;
    }

    // ---- on the network thread

    @Override
    public void ready(MqttConnection ready, boolean sessionPresent, int sendMaximum) {
        window = Math.min(link.window(), sendMaximum);
        lastReady = ready;
        connections.inc();
        mail(this::progress);
    }

    @Override
    public void arrived(MqttConnection from) {}

    @Override
    public void settled(MqttConnection from) {
        if (from.settled >= wakeAt) {
            wakeAt = NEVER;
            mail(this::progress);
        }
    }

    @Override
    public void said(MqttConnection from, String topic, byte[] payload) {
        String text = new String(payload, StandardCharsets.UTF_8);
        switch (text) {
            case "some" -> hasReaders = true;
            case "none" -> {
                hasReaders = false;
                mail(
                        () -> {
                            pauseMs = FIRST_PAUSE_MS;
                            retry();
                        });
            }
            default -> LOG.warn("cannot read what is said on {}: \"{}\"", topic, text);
        }
    }

    @Override
    public void ended(MqttConnection lost, Throwable cause) {
        mail(this::progress);
    }

    private void mail(ThrowingRunnable<? extends Exception> letter) {
        try {
            mailbox.execute(letter, "mqtt-sink");
        } catch (RejectedExecutionException e) {
            LOG.debug("the task of {} has ended", link);
        }
    }
}
