package io.speck.mqtt;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where a sink's records go out.
 *
 * <p>At most a window of records is under way. A record leaves it when the broker has taken it.
 * After a loss of the connection all that are left are sent again, in order and under the same
 * numbers, and before them those that were taken not long ago, see {@link ResendWindow}. A record
 * that the broker refuses stops the sending of new ones: when all before have an outcome, the
 * refused are tried again, the first alone, with a growing pause, and then the rest in order.
 * What the broker says that it has is not sent, see {@link Bookkeeping#confirmed}.
 *
 * <p>What is under way, refused and waiting are messages, which may carry several records.
 *
 * <p>All but the callbacks of {@link MqttConnection.Events} runs in the owner's turns, one after
 * another.
 */
final class Outlet implements MqttConnection.Events {
    private static final Logger LOG = LoggerFactory.getLogger(Outlet.class);
    private static final long FIRST_PAUSE_MS = 50;
    private static final long LONGEST_PAUSE_MS = 2000;
    private static final long NEVER = Long.MAX_VALUE;
    private static final String TOO_LARGE =
            "it is larger than the broker's Maximum Packet Size allows";

    /** How much may wait for the broker, however many records the window allows. */
    static final long MOST_PENDING_BYTES = 16 << 20;

    private final LinkConfig link;
    private final SinkCounters counters;
    private final Executor turns;
    private final Runnable step;
    private final Supervisor supervisor;
    private final ResendWindow recent;
    private final Bookkeeping books;
    private final long patienceNs;

    /** The number of settled records at which the network thread is to wake the owner. */
    private volatile long wakeAt = NEVER;

    private volatile int window;
    private volatile MqttConnection lastReady;

    private MqttConnection apartOver; // said to take one record at a time only
    private MqttConnection connection; // the one that `sent` went to; null: none yet
    private long reaped; // of this connection
    private final ArrayDeque<OutRecord> sent = new ArrayDeque<>();
    private final ArrayDeque<OutRecord> refused = new ArrayDeque<>();
    private final ArrayDeque<OutRecord> waiting = new ArrayDeque<>();
    private boolean owed; // the recent ones may be missing at the broker
    private boolean asked; // by a reader that has lost its session: whatever the broker has
    private boolean holding; // new records wait until the refused have gone
    private boolean retryPlanned;
    private IllegalStateException fault; // after which nothing goes on
    private long pauseMs = FIRST_PAUSE_MS;
    private long unreadSinceNs; // 0: not
    private long pendingBytes;

    private OutRecord newest;

    /**
     * @param turns runs the owner's turns; null: a network thread does
     * @param step what the owner does in a turn when something has happened: at least {@link
     *     #progress}
     */
    Outlet(
            LinkConfig link,
            SinkSettings settings,
            ResendWindow recent,
            Bookkeeping.Readers readers,
            SinkCounters counters,
            Executor turns,
            Runnable step) {
        this.link = link;
        this.counters = counters;
        this.step = step;
        this.window = link.window();
        this.recent = recent;
        this.books = new Bookkeeping(link, this, readers);
        this.patienceNs = settings.resendWindow().toNanos();
        this.supervisor = Supervisor.forWriter(link, this);
        this.turns = turns == null ? supervisor.thread() : turns;
    }

    /** Takes over what was published before the job was restored; to be called before the start. */
    void restore(List<Run> before) {
        long now = System.nanoTime();
        for (Run run : before) {
            for (OutRecord record : run.records()) {
                recent.add(record, now);
                newest = record;
            }
        }
    }

    void start() {
        supervisor.start();
    }

    /** Waits a while for the first connection: it says how large a record may be. */
    void awaitReady() {
        supervisor.awaitReady();
    }

    LinkConfig link() {
        return link;
    }

    int window() {
        return window;
    }

    boolean isConnected() {
        MqttConnection current = supervisor.current();
        return current != null && current.isReady();
    }

    /** How many messages have no outcome yet. */
    int pending() {
        return sent.size() + refused.size() + waiting.size() + (owed ? recent.size() : 0);
    }

    /** How many of them are on their way. */
    int underWay() {
        return sent.size();
    }

    /** Whether a record more should wait until some have gone. */
    boolean isFull() {
        return pending() >= window || pendingBytes >= MOST_PENDING_BYTES;
    }

    /** Whether the broker takes such a record: to be asked before it has a number. */
    boolean fits(Series series, int payloadBytes) {
        return payloadBytes <= mostPayload(series);
    }

    /** How large a record of the series the broker takes, as far as is known. */
    int mostPayload(Series series) {
        MqttConnection known = lastReady;
        return known == null ? Integer.MAX_VALUE : known.mostPayload(series);
    }

    /** Counts a record that was left out for its size before it had a number. */
    void leaveOut(int payloadBytes) {
        giveUp(payloadBytes, TOO_LARGE);
    }

    void add(OutRecord record) {
        newest = record;
        pendingBytes += record.payload.length;
        if (canSend()) {
            send(record);
            sendWaiting(); // it may have to go in parts
        } else {
            waiting.add(record);
        }
    }

    void addAll(Collection<OutRecord> records) {
        records.forEach(this::add);
    }

    /** Takes note of what has happened on the network since, and goes on from there. */
    void progress() {
        if (fault != null) {
            throw fault;
        }
        catchUp();
        payUp();
        if (holding && sent.isEmpty() && !retryPlanned) {
            planRetry();
        }
        sendWaiting();
    }

    private void sendWaiting() {
        while (!holding && !waiting.isEmpty() && connection.isReady() && sent.size() < window) {
            send(waiting.poll());
        }
        // what goes in parts may be more than the window: the rest goes without another record
        boolean more = !holding && !waiting.isEmpty() && sent.size() >= window;
        if (more && !wakeAfter(Math.max(1, sent.size() / 4))) {
            turn(step);
        }
    }

    private void catchUp() {
        reap();
        MqttConnection current = supervisor.current();
        if (current != connection || (connection.isEnded() && !sent.isEmpty())) {
            startOver(current);
        }
    }

    /**
     * Asks for a step when some records more are settled; it is also done when anything else
     * happens.
     *
     * <p>While there is no connection and nothing left on the old one, the next thing to happen is a
     * new one: not to wait for it would be to ask again and again.
     *
     * @return false when this is so already, and there will be none
     */
    boolean wakeAfter(int more) {
        MqttConnection watched = connection;
        if (watched == null || more == 0) {
            return true;
        }
        wakeAt = reaped + more;
        boolean cutOff = watched.isEnded() && !sent.isEmpty();
        if (watched.settled >= reaped + more || cutOff) {
            wakeAt = NEVER;
            return false;
        }
        return true;
    }

    void dontWake() {
        wakeAt = NEVER;
    }

    /**
     * Publishes, retained, up to which number the broker has everything; if it has.
     *
     * @return whether the broker has taken that, if only over an earlier connection; if not, there
     *     is a step when it has, or when that can be tried again
     */
    boolean announce() {
        if (pending() > 0) {
            return false;
        }
        if (newest == null
                || newest.series == null
                || (connection != null && !connection.isNumbered())) {
            return true;
        }
        return books.announce(connection, newest);
    }

    /** Disconnects. Called by any thread; no turns come after. */
    void close() {
        if (isConnected()) {
            books.awaitLastWord();
        }
        supervisor.close();
    }

    private boolean canSend() {
        return !holding
                && !owed
                && waiting.isEmpty()
                && connection != null
                && connection.isReady()
                && sent.size() < window;
    }

    private void send(OutRecord record) {
        if (!record.again && isConfirmed(record)) { // it came from a state: new ones come after that
            counters.confirmed().inc(record.parcel.count());
            accepted(record, System.nanoTime());
            return;
        }
        boolean fits = connection.fits(record);
        if (!record.parcel.isPlain() && !(fits && connection.isNumbered())) {
            sendApart(record);
            return;
        }
        if (!fits) { // not known at its numbering
            giveUp(record, TOO_LARGE);
            return;
        }
        sent.add(record);
        counters.bytesSent().inc(connection.send(record));
    }

    /**
     * Several records that the broker does not take together: since it has another limit now, or
     * speaks MQTT 3.1.1, in which readers could not tell them from one. They wait, each on its own.
     */
    private void sendApart(OutRecord together) {
        if (!connection.isNumbered() && apartOver != connection) {
            apartOver = connection;
            LOG.warn("{} speaks MQTT 3.1.1: records go one by one, not compressed", link);
        }
        recent.forget(together);
        pendingBytes -= together.payload.length;
        List<OutRecord> records = together.split();
        for (int i = records.size() - 1; i >= 0; i--) {
            OutRecord record = records.get(i);
            waiting.addFirst(record);
            pendingBytes += record.payload.length;
        }
    }

    private static long recordsIn(Collection<OutRecord> messages) {
        return messages.stream().mapToLong(message -> message.parcel.count()).sum();
    }

    private void reap() {
        long now = System.nanoTime();
        OutRecord record;
        while ((record = sent.peek()) != null && record.outcome != OutRecord.UNDER_WAY) {
            switch (record.outcome) {
                case OutRecord.CUT_OFF -> {
                    return; // and so are all behind it
                }
                case OutRecord.REFUSED -> refuse(record);
                case OutRecord.UNREAD -> unread(record, now);
                case OutRecord.UNDELIVERABLE -> giveUp(record, record.problem);
                default -> accepted(record, now);
            }
            sent.poll();
            reaped++;
        }
        recent.prune(now);
    }

    private void accepted(OutRecord record, long now) {
        pendingBytes -= record.payload.length;
        if (holding && refused.isEmpty()) { // the one that was tried alone
            LOG.info("{} takes records again", link);
            holding = false;
            pauseMs = FIRST_PAUSE_MS;
        }
        unreadSinceNs = 0;
        if (link.delivery().acknowledged() && connection.isNumbered()) {
            recent.add(record, now);
        }
    }

    private void unread(OutRecord record, long now) {
        if (books.readers() == Bookkeeping.Readers.NONE || isConfirmed(record)) {
            accepted(record, now);
            return;
        }
        if (unreadSinceNs == 0) {
            unreadSinceNs = now;
        }
        if (books.readers() == Bookkeeping.Readers.NOT_KNOWN
                && now - unreadSinceNs > patienceNs) {
            LOG.warn("nobody reads {} any more: record {} is given up", link, record.number);
            counters.unread().inc(record.parcel.count());
            long since = unreadSinceNs;
            accepted(record, now);
            unreadSinceNs = since; // the rest need not wait for as long
        } else {
            record.problem = "nobody has subscribed to it";
            refuse(record);
        }
    }

    /**
     * Taken at an earlier attempt, by us or by the incarnation before: a reader had it in store. So
     * was all before it in its series: nothing of that is under way.
     */
    private boolean isConfirmed(OutRecord record) {
        SentNumber known = books.confirmed(connection);
        return known != null && known.covers(record);
    }

    private void refuse(OutRecord record) {
        if (!holding) {
            LOG.warn("{} does not take record {}: {}; holding", link, record.number, record.problem);
        }
        holding = true;
        counters.refused().inc(record.parcel.count());
        refused.add(record);
    }

    /**
     * Without this one record would hold all behind it for ever. Under exactly_once it may: its
     * number would be missing for good, and the checkpoint still has it.
     */
    private void giveUp(OutRecord record, String problem) {
        if (link.delivery() == Delivery.EXACTLY_ONCE) {
            int most = connection.mostPayload(record.series);
            fault =
                    new IllegalStateException(
                            PacketLimit.tooLarge(link, record.payload.length, most));
            throw fault;
        }
        recent.forget(record);
        pendingBytes -= record.payload.length;
        giveUp(record.payload.length, problem);
    }

    private void giveUp(int bytes, String problem) {
        LOG.error(
                "cannot publish a record of {} bytes to {}: {}; it is left out",
                bytes,
                link,
                problem);
        counters.undeliverable().inc();
        counters.failures().inc();
    }

    /** A new connection knows nothing of what the old one was given, and its broker may not. */
    private void startOver(MqttConnection current) {
        if (link.delivery().acknowledged()) {
            counters.resent().inc(recordsIn(sent));
            while (!sent.isEmpty()) {
                waiting.addFirst(sent.pollLast());
            }
        } else {
            counters.failures().inc(recordsIn(sent)); // at most once: what was on the wire stays there
            sent.forEach(record -> pendingBytes -= record.payload.length);
            sent.clear();
        }
        takeBackRefused();
        owed = recent.size() > 0;
        if (owed) {
            waiting.removeIf(this::isAgain); // they come out of the window once more
        }
        holding = false;
        books.startOver();
        reaped = 0;
        connection = current;
    }

    private boolean isAgain(OutRecord record) {
        if (record.kept) {
            pendingBytes -= record.payload.length;
        }
        return record.kept;
    }

    /** Sends again what was acknowledged of late, unless the broker says that it has it. */
    private void payUp() {
        if (!owed || !connection.isReady() || (asked && !sent.isEmpty())) {
            return;
        }
        owed = false;
        waiting.removeIf(this::isAgain); // they come out of the window once more
        List<OutRecord> missing = recent.sendAgain(asked ? null : books.confirmed(connection));
        asked = false;
        counters.resent().inc(recordsIn(missing));
        for (int i = missing.size() - 1; i >= 0; i--) {
            OutRecord record = missing.get(i);
            waiting.addFirst(record);
            pendingBytes += record.payload.length;
        }
    }

    /** All of the window once more: one of the link's readers has lost its session. */
    private void sendAgain() {
        // what is under way may have been taken for other readers only: it counts once it is settled
        if ((recent.size() > 0 || !sent.isEmpty()) && link.delivery().acknowledged()) {
            LOG.info("a reader of {} has lost its session: sends again what is not long ago", link);
            owed = true;
            asked = true;
        }
        step.run();
    }

    private void takeBackRefused() {
        while (!refused.isEmpty()) {
            waiting.addFirst(refused.pollLast());
        }
    }

    private void planRetry() {
        retryPlanned = true;
        OutRecord first = refused.peek();
        if (first != null && first.outcome == OutRecord.UNREAD) {
            long held = recordsIn(sent) + recordsIn(refused) + recordsIn(waiting);
            books.sayHeld(connection, first, (int) held);
        }
        supervisor.later(pauseMs, () -> turn(this::retryAfterPause));
        pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
    }

    private void retryAfterPause() {
        retryPlanned = false;
        retry();
    }

    private void retryAtOnce() {
        pauseMs = FIRST_PAUSE_MS;
        retry();
    }

    /** Tries the first of the refused again. */
    private void retry() {
        try {
            tryFirst();
        } catch (IllegalStateException e) {
            LOG.debug("the owner of {} gets it at its next step", link, e);
        }
        step.run();
    }

    private void tryFirst() {
        catchUp();
        payUp();
        if (holding && sent.isEmpty() && connection.isReady()) {
            takeBackRefused();
            if (waiting.isEmpty()) { // the one that was tried could not be sent at all
                holding = false;
            } else {
                wakeAt = reaped + 1;
                send(waiting.poll());
            }
        }
    }

    /** What the owner does when something has happened; in a turn. */
    void step() {
        step.run();
    }

    /** Runs a task in a turn; not at all when the owner has ended. */
    void turn(Runnable task) {
        try {
            turns.execute(task);
        } catch (RejectedExecutionException e) {
            LOG.debug("the sink to {} has ended", link);
        }
    }

    // ---- on the network thread

    @Override
    public void ready(MqttConnection ready, boolean sessionPresent, int sendMaximum) {
        window = Math.min(link.window(), sendMaximum);
        lastReady = ready;
        counters.connections().inc();
        turn(step);
    }

    @Override
    public void arrived(MqttConnection from) {}

    @Override
    public void settled(MqttConnection from) {
        if (from.settled >= wakeAt) {
            wakeAt = NEVER;
            turn(step);
        }
    }

    @Override
    public void said(MqttConnection from, String topic, byte[] payload) {
        switch (books.hear(from, topic, payload)) {
            case NO_READERS -> turn(this::retryAtOnce);
            case AGAIN -> turn(this::sendAgain);
            case NOTHING -> {}
        }
    }

    @Override
    public void ended(MqttConnection lost, Throwable cause) {
        turn(step);
    }
}
