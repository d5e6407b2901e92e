package io.speck.mqtt.connection;

import io.speck.link.transport.LinkClient;
import io.speck.link.transport.LinkConfig;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps one client connected: connects, and after each loss connects anew with a growing, jittered
 * pause. A broker that is away never fails the job: its messages wait.
 */
public final class Supervisor implements LinkClient<MqttConnection> {
    /** System properties by which tests need not wait for so long. */
    public static final String READY_TIMEOUT_PROPERTY = "speck.mqtt.ready.timeout.ms";

    public static final String CLOSE_TIMEOUT_PROPERTY = "speck.mqtt.close.timeout.ms";

    private static final Logger LOG = LoggerFactory.getLogger(Supervisor.class);
    private static final long FIRST_PAUSE_MS = 50;
    private static final long MAX_PAUSE_MS = 4000;
    private static final long STABLE_AFTER_MS = 5000; // a connection this old was a good one
    private static final int MANY_EARLY_ENDS = 3;
    private static final long CLOSE_TIMEOUT_MS = 3000;
    private static final long READY_TIMEOUT_MS = 10_000;
    private static final int LOG_EVERY = 20;

    private final LinkConfig link;
    private final boolean reader;
    private final ConnectionListener listener;
    private final EventLoops loops = EventLoops.lease();
    private final ProtocolVersion version;

    private final CompletableFuture<Void> firstReady = new CompletableFuture<>();

    private volatile MqttConnection current;
    private volatile boolean closing;
    private volatile String problem = "";
    private long pauseMs = FIRST_PAUSE_MS;
    private long readySinceNs;
    private boolean wasReady;
    private int earlyEnds;
    private int failures;

    private Supervisor(LinkConfig link, boolean reader, ConnectionListener listener) {
        this.link = link;
        this.version = new ProtocolVersion(link, loops);
        this.reader = reader;
        this.listener = listener;
    }

    public static Supervisor forReader(LinkConfig link, ConnectionListener listener) {
        return new Supervisor(link, true, listener);
    }

    public static Supervisor forWriter(LinkConfig link, ConnectionListener listener) {
        return new Supervisor(link, false, listener);
    }

    /** Starts connecting; returns at once. */
    @Override
    public void start() {
        try {
            connect();
        } catch (RuntimeException e) {
            loops.close();
            throw e;
        }
    }

    /**
     * Returns the newest connection; it may be still connecting, or lost. Null before the start.
     */
    @Override
    public MqttConnection current() {
        return current;
    }

    @Override
    public boolean isConnected() {
        MqttConnection connection = current;
        return connection != null && connection.isReady();
    }

    /**
     * Returns why there is no connection, for people; empty if there is one, or none is tried. Where
     * several have ended soon after they were made, one has to last before the problem is over: two
     * clients with one id end each other's connections (Mosquitto gives no reason), and each takes
     * messages of the other.
     */
    @Override
    public String problem() {
        String why = problem;
        return why.isEmpty() || isStable() ? "" : why;
    }

    private synchronized boolean isStable() {
        return wasReady && System.nanoTime() - readySinceNs > STABLE_AFTER_MS * 1_000_000;
    }

    /**
     * Waits for the first connection, at most 10 s: a broker that is away is tried again and again,
     * and holds no job up for longer. An interrupt ends the wait, and is left to whoever looks at
     * it next.
     */
    @Override
    public void awaitReady() {
        try {
            long timeoutMs = Long.getLong(READY_TIMEOUT_PROPERTY, READY_TIMEOUT_MS);
            firstReady.get(timeoutMs, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (TimeoutException e) {
            LOG.warn("going on without {}: it does not answer; trying again", link);
        } catch (ExecutionException e) {
            throw new IllegalStateException(e); // it is never completed with an error
        }
    }

    /** Returns a network thread, for who has no thread of its own; usable until the close. */
    @Override
    public Executor networkThread() {
        return loops.group().next();
    }

    /** Runs a task on a network thread after a pause. */
    @Override
    public void schedule(long delayMs, Runnable task) {
        loops.group().schedule(task, delayMs, TimeUnit.MILLISECONDS);
    }

    /** Disconnects; a reader's session stays at the broker. What was sent before still arrives. */
    @Override
    public void close() {
        MqttConnection last;
        synchronized (this) {
            closing = true;
            last = current;
        }
        if (last == null) {
            loops.close();
            return;
        }
        last.end().whenComplete((nothing, error) -> loops.close());
        if (last.isReady()) {
            last.disconnect();
            awaitEnd(last.end());
        } // else it ends by itself, soon: connecting has a time limit
    }

    private void reconnect() {
        attempt(() -> version.askBefore(() -> attempt(this::connect)));
    }

    private void attempt(Runnable step) {
        try {
            step.run();
        } catch (RuntimeException e) { // credentials that are being replaced, for instance
            LOG.error("cannot connect to {}; trying again", link, e);
            problem = "cannot connect to %s: %s".formatted(link, e.getMessage());
            schedule(MAX_PAUSE_MS, this::reconnect);
        }
    }

    private synchronized void connect() {
        if (closing) {
            return;
        }
        ConnectionListener watch = new Watch();
        MqttConnection next =
                version.isOld()
                        ? new Mqtt3Connection(link, loops, watch)
                        : new Mqtt5Connection(link, loops, watch);
        current = next; // before opening: messages may come before we know that we are connected
        next.open(reader);
    }

    /** Passes everything on, and connects anew at the end. */
    private final class Watch implements ConnectionListener {
        @Override
        public void onReady(MqttConnection connection, boolean sessionPresent, int sendMaximum) {
            LOG.info("connected to {} as {}", link, link.clientId());
            noteReady();
            listener.onReady(connection, sessionPresent, sendMaximum);
            firstReady.complete(null);
            if (closing) {
                connection.disconnect();
            }
        }

        @Override
        public void onMessages(MqttConnection connection) {
            listener.onMessages(connection);
        }

        @Override
        public void onOutcomes(MqttConnection connection) {
            listener.onOutcomes(connection);
        }

        @Override
        public void onAdmitted(MqttConnection connection, boolean sessionPresent) {
            listener.onAdmitted(connection, sessionPresent);
        }

        @Override
        public void onAnnouncement(MqttConnection connection, String topic, byte[] payload) {
            listener.onAnnouncement(connection, topic, payload);
        }

        @Override
        public void onEnd(MqttConnection connection, Throwable cause) {
            listener.onEnd(connection, cause);
            if (!closing) {
                schedule(choosePause(connection, cause), Supervisor.this::reconnect);
            }
        }
    }

    private synchronized void noteReady() {
        version.noteReady();
        problem = earlyEnds < MANY_EARLY_ENDS ? "" : problem;
        readySinceNs = System.nanoTime();
        wasReady = true;
        failures = 0;
    }

    private synchronized long choosePause(MqttConnection ended, Throwable cause) {
        if (version.turnsOldAfter(ended, cause)) {
            return 0;
        }
        if (wasReady) {
            boolean stable = isStable();
            earlyEnds = stable ? 0 : earlyEnds + 1;
            pauseMs = stable ? FIRST_PAUSE_MS : pauseMs;
        }
        if (wasReady || failures % LOG_EVERY == 0) {
            LOG.warn("cannot reach {}: {}; trying again", link, cause.toString());
        }
        String refusal = ended.refusal();
        String why = refusal != null ? refusal : LinkProblem.describe(cause);
        String refusalOf5 = version.problem();
        why = refusalOf5 != null ? refusalOf5 : why;
        if (earlyEnds >= MANY_EARLY_ENDS) {
            why +=
                    "; it ends soon after each connect: another client may have the id "
                            + link.clientId();
        }
        problem = "cannot %s %s: %s".formatted(reader ? "read" : "write to", link, why);
        wasReady = false;
        failures++;
        long pause = pauseMs;
        pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2);
        return pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2 + 1);
    }

    /** Waits also when the task was cancelled, so that the good-bye gets out. */
    private static void awaitEnd(CompletableFuture<Void> end) {
        boolean interrupted = false;
        long timeoutMs = Long.getLong(CLOSE_TIMEOUT_PROPERTY, CLOSE_TIMEOUT_MS);
        long deadline = System.nanoTime() + timeoutMs * 1_000_000;
        while (!end.isDone() && System.nanoTime() < deadline) {
            try {
                end.get(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            } catch (InterruptedException e) {
                interrupted = true;
            } catch (TimeoutException e) {
                LOG.warn("a connection did not end within {} ms", timeoutMs);
            } catch (ExecutionException e) {
                throw new IllegalStateException(e); // it is never completed with an error
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
