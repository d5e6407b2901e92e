package io.speck.mqtt;

import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5ConnAckException;
import com.hivemq.client.mqtt.mqtt5.message.connect.connack.Mqtt5ConnAckReasonCode;
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
 * pause. A broker that is away never fails the job: its records wait.
 */
final class Supervisor implements MqttConnection.Events, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Supervisor.class);
    private static final long FIRST_PAUSE_MS = 50;
    private static final long LONGEST_PAUSE_MS = 4000;
    private static final long SETTLED_IN_MS = 5000; // a connection this old was a good one
    private static final long CLOSE_TIMEOUT_MS = 3000;
    private static final long READY_TIMEOUT_MS = 10_000;
    private static final int LOG_EVERY = 20;

    private final LinkConfig link;
    private final boolean reader;
    private final MqttConnection.Events listener;
    private final EventLoops loops = EventLoops.lease();

    private final CompletableFuture<Void> firstReady = new CompletableFuture<>();

    private volatile MqttConnection current;
    private volatile boolean closing;
    private boolean oldProtocol;
    private long pauseMs = FIRST_PAUSE_MS;
    private long readySinceNs;
    private boolean wasReady;
    private int failures;

    private Supervisor(LinkConfig link, boolean reader, MqttConnection.Events listener) {
        this.link = link;
        this.reader = reader;
        this.listener = listener;
    }

    static Supervisor forReader(LinkConfig link, MqttConnection.Events listener) {
        return new Supervisor(link, true, listener);
    }

    static Supervisor forWriter(LinkConfig link, MqttConnection.Events listener) {
        return new Supervisor(link, false, listener);
    }

    /** Starts connecting; returns at once. */
    void start() {
        try {
            connect();
        } catch (RuntimeException e) {
            loops.close();
            throw e;
        }
    }

    /** The connection of now; it may be still connecting, or lost. Null before the start. */
    MqttConnection current() {
        return current;
    }

    /**
     * Waits for the first connection, at most 10 s: a broker that is away is tried on, and holds no
     * job up for longer. An interrupt ends the wait, and is left to whoever looks at it next.
     */
    void awaitReady() {
        try {
            firstReady.get(READY_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (TimeoutException e) {
            LOG.warn("going on without {}: it does not answer; trying on", link);
        } catch (ExecutionException e) {
            throw new IllegalStateException(e); // it is never completed with an error
        }
    }

    /** One network thread, for who has no thread of its own; usable until the close. */
    Executor thread() {
        return loops.group().next();
    }

    /** Runs a task on a network thread after a pause. */
    void later(long pause, Runnable task) {
        loops.group().schedule(task, pause, TimeUnit.MILLISECONDS);
    }

    @Override
    public void ready(MqttConnection connection, boolean sessionPresent, int sendMaximum) {
        LOG.info("connected to {} as {}", link, link.clientId());
        synchronized (this) {
            readySinceNs = System.nanoTime();
            wasReady = true;
            failures = 0;
        }
        listener.ready(connection, sessionPresent, sendMaximum);
        firstReady.complete(null);
        if (closing) {
            connection.disconnect();
        }
    }

    @Override
    public void arrived(MqttConnection connection) {
        listener.arrived(connection);
    }

    @Override
    public void settled(MqttConnection connection) {
        listener.settled(connection);
    }

    @Override
    public void admitted(MqttConnection connection, boolean sessionPresent) {
        listener.admitted(connection, sessionPresent);
    }

    @Override
    public void said(MqttConnection connection, String topic, byte[] payload) {
        listener.said(connection, topic, payload);
    }

    @Override
    public void ended(MqttConnection connection, Throwable cause) {
        listener.ended(connection, cause);
        if (!closing) {
            later(pauseAfter(cause), this::connectAgain);
        }
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
            await(last.end());
        } // else it ends by itself, soon: connecting has a time limit
    }

    private void connectAgain() {
        try {
            connect();
        } catch (RuntimeException e) { // credentials that are being replaced, for instance
            LOG.error("cannot connect to {}; trying again", link, e);
            later(LONGEST_PAUSE_MS, this::connectAgain);
        }
    }

    private synchronized void connect() {
        if (closing) {
            return;
        }
        MqttConnection next =
                oldProtocol
                        ? new Mqtt3Connection(link, loops, this)
                        : new Mqtt5Connection(link, loops, this);
        current = next; // before opening: messages may come before we know that we are connected
        next.open(reader);
    }

    private synchronized long pauseAfter(Throwable cause) {
        if (refusesVersion5(cause) && !oldProtocol) {
            LOG.warn(
                    "{} refuses MQTT 5; going on with MQTT 3.1.1: repeats and holes are not seen",
                    link);
            oldProtocol = true;
            return 0;
        }
        if (wasReady && System.nanoTime() - readySinceNs > SETTLED_IN_MS * 1_000_000) {
            pauseMs = FIRST_PAUSE_MS;
        }
        if (wasReady || failures % LOG_EVERY == 0) {
            LOG.warn("cannot reach {}: {}; trying on", link, cause.toString());
        }
        wasReady = false;
        failures++;
        long pause = pauseMs;
        pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
        return pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2 + 1);
    }

    private static boolean refusesVersion5(Throwable cause) {
        return cause instanceof Mqtt5ConnAckException refused
                && refused.getMqttMessage().getReasonCode()
                        == Mqtt5ConnAckReasonCode.UNSUPPORTED_PROTOCOL_VERSION;
    }

    /** Waits also when the task was cancelled, so that the good-bye gets out. */
    private static void await(CompletableFuture<Void> end) {
        boolean interrupted = false;
        long deadline = System.nanoTime() + CLOSE_TIMEOUT_MS * 1_000_000;
        while (!end.isDone() && System.nanoTime() < deadline) {
            try {
                end.get(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            } catch (InterruptedException e) {
                interrupted = true;
            } catch (TimeoutException e) {
                LOG.warn("a connection did not end within {} ms", CLOSE_TIMEOUT_MS);
            } catch (ExecutionException e) {
                throw new IllegalStateException(e); // it is never completed with an error
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
