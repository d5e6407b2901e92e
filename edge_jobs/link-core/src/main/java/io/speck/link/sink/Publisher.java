package io.speck.link.sink;

import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.SentRecords;
import io.speck.link.protocol.SinkReport;
import io.speck.link.transport.LinkClient;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.OutgoingMessage.Outcome;
import io.speck.link.transport.Transport;
import io.speck.link.transport.Transports;
import io.speck.link.transport.WriterConnection;
import io.speck.link.transport.WriterListener;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Publishes a sink's messages.
 *
 * <p>At most a window of messages is under way. A message leaves it when the broker has taken it.
 * After a loss of the connection all that are left are sent again, in order and under the same
 * numbers, and before them those that were acknowledged not long ago, see {@link ResendWindow}; but
 * not what the broker says that it has, see {@link LinkStatus#confirmedRecords}. What the broker
 * refuses is tried again, see {@link RefusalRetry}. Nothing is sent to a broker that has lost the
 * session of a reader, see {@link ReaderSessions}.
 *
 * <p>All but {@link Events} and {@link #close} is run by the owner: a task, or one network thread.
 */
final class Publisher {
    private static final Logger LOG = LoggerFactory.getLogger(Publisher.class);
    private static final long NEVER = Long.MAX_VALUE;

    /** How much may wait for the broker, however many messages the window allows. */
    static final long MAX_PENDING_BYTES = 16 << 20;

    private final LinkConfig link;
    private final SinkCounters counters;
    private final Executor owner;
    private final Runnable onProgress;
    private final LinkClient<? extends WriterConnection> client;
    private final ResendWindow recent;
    private final PendingResend resend;
    private final RefusalRetry retry;
    private final LinkStatus status;
    private final SendQueue queue = new SendQueue();
    private final EndingMessage ending = new EndingMessage();
    private final OutcomeHandler outcomes;

    /** The number of settled messages at which the network thread is to wake the owner. */
    private volatile long wakeAt = NEVER;

    private volatile int window;
    private volatile WriterConnection lastReady;

    /** The first of the messages that an earlier incarnation may have sent; null: there is none. */
    private volatile SentNumber doubtful;

    private WriterConnection connection; // the one over which `queue` was sent; null: none yet
    private WriterConnection heldOver; // announced to lack a reader's session
    private long settledCount; // messages of this connection whose outcome was handled
    private SinkMessage newest;

    /**
     * @param owner runs the owner's tasks; null: a network thread does
     * @param onProgress what the owner does when something has happened: at least {@link #advance}
     */
    Publisher(
            LinkConfig link,
            SinkSettings settings,
            ResendWindow recent,
            LinkStatus.Readers readers,
            SinkCounters counters,
            Executor owner,
            Runnable onProgress) {
        this(
                Transports.of(link.broker()),
                link,
                settings,
                recent,
                readers,
                counters,
                owner,
                onProgress);
    }

    /** The same over a given transport. */
    Publisher(
            Transport transport,
            LinkConfig link,
            SinkSettings settings,
            ResendWindow recent,
            LinkStatus.Readers readers,
            SinkCounters counters,
            Executor owner,
            Runnable onProgress) {
        this.link = link;
        this.counters = counters;
        this.onProgress = onProgress;
        this.window = link.window();
        this.recent = recent;
        this.resend = new PendingResend(recent);
        this.retry = new RefusalRetry(settings.resendWindow().toNanos());
        this.client = transport.openWriter(link, new Events());
        this.owner = owner == null ? client.networkThread() : owner;
        this.status = new LinkStatus(link, readers, this::runByOwner, onProgress, this::report);
        this.outcomes = new OutcomeHandler(link, counters, queue, recent, retry, status, ending);
    }

    /**
     * Takes over what was published before the job was restored; must be called before the start.
     */
    void restore(List<NumberedMessages> published) {
        long now = System.nanoTime();
        for (NumberedMessages run : published) {
            for (SinkMessage message : run.toSinkMessages()) {
                recent.add(message, now);
                newest = message;
            }
        }
    }

    /**
     * An earlier incarnation may have sent the messages from this one on, which are about to be
     * added; must be called before the start.
     */
    void doubt(SinkMessage first) {
        doubtful = SentNumber.of(first.epoch(), first.number());
    }

    void start() {
        client.start();
    }

    /** Waits a while for the first connection: it says how large a record may be. */
    void awaitReady() {
        client.awaitReady();
    }

    int window() {
        return window;
    }

    boolean isConnected() {
        return client.isConnected();
    }

    /** Returns why nothing gets through, for people; empty: nothing is wrong. Of any thread. */
    String problem() {
        String refusal = outcomes.refusal();
        return refusal == null || !isConnected() ? client.problem() : refusal;
    }

    /** What the broker is told of the sink, beside its numbers. */
    private SinkReport report() {
        String refusal = outcomes.refusal();
        return new SinkReport(
                refusal == null ? 0 : queue.countRefusedRecords(),
                counters.recordsUndeliverable().getCount(),
                counters.countLost(),
                refusal);
    }

    /** Returns how many messages have no outcome yet. */
    int pendingCount() {
        return queue.size() + resend.size();
    }

    /** Returns how many of them were sent. */
    int sentCount() {
        return queue.sentCount();
    }

    /** Whether another message should wait until some have an outcome. */
    boolean isFull() {
        return pendingCount() >= window || queue.bytes() >= MAX_PENDING_BYTES;
    }

    /** Returns how large a payload of the epoch the broker takes, as far as is known. */
    int maxPayload(ProducerEpoch epoch) {
        WriterConnection known = lastReady;
        return known == null ? Integer.MAX_VALUE : known.maxPayload(epoch);
    }

    /** Counts a record that was left out for its size before it had a number. */
    void leaveOut(int recordBytes) {
        outcomes.leaveOut(recordBytes);
    }

    void add(SinkMessage message) {
        newest = message;
        boolean canSend = canSendAtOnce(message);
        queue.add(message);
        if (canSend) {
            send(queue.takeFirst());
            sendWaiting(); // it may have to be split
        }
    }

    void addAll(Collection<SinkMessage> messages) {
        messages.forEach(this::add);
    }

    /** Handles what has happened on the network since, and goes on from there. */
    void advance() {
        outcomes.rethrowFault();
        catchUp();
        resendIfDue();
        announceMissingSession();
        if (retry.needsTrial(queue.sentCount() > 0)) {
            scheduleTrial();
        }
        sendWaiting();
    }

    /**
     * Calls the owner when some messages more are settled, or anything else happens.
     *
     * <p>While there is no connection and nothing left on the old one, the next thing to happen is
     * a new one: not to wait for it would be to ask again and again.
     *
     * @return false when this is so already, and the owner is not called
     */
    boolean wakeAfter(int more) {
        WriterConnection current = connection;
        if (current == null || more == 0) {
            return true;
        }
        wakeAt = settledCount + more;
        boolean cutOff = current.isEnded() && queue.sentCount() > 0;
        if (current.settledCount() >= settledCount + more || cutOff) {
            wakeAt = NEVER;
            return false;
        }
        return true;
    }

    void cancelWakeUp() {
        wakeAt = NEVER;
    }

    /**
     * Announces, retained, up to which number the broker has everything; if it has.
     *
     * @return whether the broker has taken that, if only over an earlier connection; if not, the
     *     owner is called when it has, or when that can be tried again
     */
    boolean announce() {
        if (pendingCount() > 0) {
            return false;
        }
        doubtful = null;
        if (newest == null
                || newest.epoch() == null
                || (connection != null && !connection.isNumbered())) {
            return true;
        }
        return status.announce(connection, newest);
    }

    /** Disconnects. Called by any thread; the owner is not called any more. */
    void close() {
        if (isConnected()) {
            status.awaitLastAnnouncement();
        }
        client.close();
    }

    /** Lets the owner run a task; not at all when it has ended. */
    void runByOwner(Runnable task) {
        try {
            owner.execute(task);
        } catch (RejectedExecutionException e) {
            LOG.debug("the sink to {} has ended", link);
        }
    }

    // ---- sending

    private boolean canSendAtOnce(SinkMessage message) {
        return connection != null
                && !isHeld()
                && !resend.isDue()
                && !queue.hasWaiting()
                && connection.isReady()
                && hasRoomFor(message);
    }

    private boolean hasRoomFor(SinkMessage message) {
        SinkMessage first = queue.firstSent();
        if (first == null || !ending.sendsAlone()) {
            return queue.sentCount() < window;
        }
        return message.kept && first.kept && queue.sentCount() < window;
    }

    private boolean isHeld() {
        return retry.isHolding() || !status.reachesAllReaders(connection);
    }

    private void sendWaiting() {
        if (isHeld()) {
            return;
        }
        while (queue.hasWaiting() && connection.isReady() && hasRoomFor(queue.firstWaiting())) {
            send(queue.takeFirst());
        }
        // what was split may be more than the window: the rest goes without another message
        boolean more = queue.hasWaiting() && !hasRoomFor(queue.firstWaiting());
        if (more && !wakeAfter(Math.max(1, queue.sentCount() / 4))) {
            runByOwner(onProgress);
        }
    }

    private void send(SinkMessage message) {
        // it came from a state, unless it is resent: new ones come after what the broker has
        if (!message.resent && message.isCoveredBy(status.confirmedRecords(connection))) {
            outcomes.confirm(message, connection);
            return;
        }
        boolean fits = connection.fits(message);
        if (!message.message().isPlain() && !(fits && connection.isNumbered() && connection.takesBatches())) {
            outcomes.split(message, connection);
        } else if (!fits) { // not known when it got its number
            outcomes.giveUpTooLarge(message, connection);
        } else {
            queue.addSent(message);
            counters.bytesSent().inc(connection.send(message));
        }
    }

    // ---- another connection, and what is sent again over it

    private void catchUp() {
        settledCount += outcomes.handleAll(connection);
        WriterConnection current = client.current();
        if (current != connection || (connection.isEnded() && queue.sentCount() > 0)) {
            startOver(current);
        }
    }

    /** A new connection knows nothing of what the old one was given, and its broker may not. */
    private void startOver(WriterConnection current) {
        if (link.delivery().isAcknowledged()) {
            SinkMessage cause = findEnding();
            counters.recordsResent().inc(queue.countSentRecords());
            queue.requeueSent();
            if (cause != null) {
                outcomes.handleEnding(cause, connection);
            }
        } else { // at most once: what was on the wire stays there
            counters.failures().inc(queue.countSentRecords());
            queue.clearSent();
        }
        queue.requeueRefused();
        resend.startOver();
        if (resend.isDue()) {
            queue.removeKept();
        }
        retry.release();
        status.startOver();
        settledCount = 0;
        connection = current;
    }

    /** Takes the message because of which the last connection ended; null: it is not known. */
    private SinkMessage findEnding() {
        SinkMessage first = queue.firstSent();
        long count = queue.countNeverAnswered();
        if (first == null || !ending.noteEnd(first, count, connection.guilt())) {
            return null;
        }
        ending.forget();
        queue.removeFirstSent();
        return first;
    }

    private void resendIfDue() {
        if (!resend.canBegin(queue.sentCount() > 0) || !connection.isReady()) {
            return;
        }
        queue.requeueRefused(); // the window comes before it, and may have some of it
        queue.removeKept();
        List<SinkMessage> missing = resend.begin(status.confirmedRecords(connection));
        counters.recordsResent().inc(SendQueue.countRecords(missing));
        queue.addFirst(missing);
    }

    /** One of the link's readers has lost its session. */
    private void resendOnRequest() {
        boolean anything = recent.size() > 0 || queue.sentCount() > 0;
        if (anything && link.delivery().isAcknowledged()) {
            LOG.info("a reader of {} has lost its session: sends the resend window again", link);
            resend.request();
        }
        onProgress.run();
    }

    /** The control plane makes the session again, or says that it is not missing. */
    private void announceMissingSession() {
        SinkMessage first = queue.firstWaiting();
        if (first == null
                || resend.isDue() // it may begin before the first
                || heldOver == connection
                || !connection.isReady()
                || status.reachesAllReaders(connection)) {
            return;
        }
        heldOver = connection;
        LOG.warn("{} has lost the session of a reader: holding until it is there again", link);
        status.announceHeld(connection, first, (int) queue.countRecords(), false);
    }

    // ---- refused messages

    private void scheduleTrial() {
        SinkMessage first = queue.firstRefused();
        if (first != null) {
            boolean refused = first.outcome() != Outcome.UNREAD;
            status.announceHeld(connection, first, (int) queue.countRecords(), refused);
        }
        client.schedule(retry.schedule(), () -> runByOwner(this::retryAfterPause));
    }

    private void retryAfterPause() {
        retry.begin();
        retryRefused();
    }

    private void retryAtOnce() {
        retry.shortenPause();
        retryRefused();
    }

    private void retryRefused() {
        try {
            tryFirst();
        } catch (IllegalStateException e) {
            LOG.debug("the owner of {} gets it when it advances", link, e);
        }
        onProgress.run();
    }

    private void tryFirst() {
        catchUp();
        resendIfDue();
        boolean canTry = retry.isHolding() && status.reachesAllReaders(connection);
        if (canTry && queue.sentCount() == 0 && connection.isReady()) {
            queue.requeueRefused();
            if (queue.hasWaiting()) {
                wakeAt = settledCount + 1;
                send(queue.takeFirst());
            } else { // the one that was tried could not be sent at all
                retry.release();
            }
        }
    }

    /** What happens on the network thread. */
    private final class Events implements WriterListener {
        @Override
        public void onReady(WriterConnection ready, int sendMaximum) {
            window = Math.min(link.window(), sendMaximum);
            lastReady = ready;
            recent.setConnected(true);
            counters.connections().inc();
            runByOwner(onProgress);
        }

        @Override
        public SentNumber oldestDoubtful() {
            SentNumber restored = doubtful;
            return restored == null ? recent.newest() : restored;
        }

        @Override
        public void onOutcomes(WriterConnection from) {
            if (from.settledCount() >= wakeAt) {
                wakeAt = NEVER;
                runByOwner(onProgress);
            }
        }

        @Override
        public void onConfirmed(WriterConnection from, SentRecords records) {
            status.confirm(from, records);
        }

        @Override
        public void onReaders(WriterConnection from, boolean exist) {
            status.setReaders(exist);
            if (!exist) { // what is held may go
                runByOwner(Publisher.this::retryAtOnce);
            }
        }

        @Override
        public void onReaderLost(WriterConnection from) {
            runByOwner(Publisher.this::resendOnRequest);
        }

        @Override
        public void onSession(WriterConnection from, String clientId, boolean exists) {
            status.sessions().hear(from, clientId, exists);
            runByOwner(onProgress);
        }

        @Override
        public void onSessionsComplete(WriterConnection from) {
            status.sessions().confirm(from);
            runByOwner(onProgress);
        }

        @Override
        public void onEnd(WriterConnection from, Throwable cause) {
            recent.setConnected(false);
            runByOwner(onProgress);
        }
    }
}
