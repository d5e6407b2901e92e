package io.speck.kafka;

import io.speck.link.transport.LinkClient;
import io.speck.link.transport.LinkConfig;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.UnsupportedSaslMechanismException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Keeps one end of a link connected, with a growing, jittered pause between attempts. */
final class KafkaClient<C extends LogConnection> implements LinkClient<C> {
    /** System property by which tests need not wait for so long. */
    static final String READY_TIMEOUT_PROPERTY = "speck.kafka.ready.timeout.ms";

    static final String THREADS = "speck-kafka-";

    private static final Logger LOG = LoggerFactory.getLogger(KafkaClient.class);
    private static final long READY_TIMEOUT_MS = 10_000;
    private static final long CLOSE_TIMEOUT_MS = 3000;
    private static final long FIRST_PAUSE_MS = 50;
    private static final long MAX_PAUSE_MS = 2000;
    private static final int LOG_EVERY = 20;

    private final LinkConfig link;
    private final String doing;
    private final Function<LogConnection.Watch, C> create;
    private final ScheduledThreadPoolExecutor owner;
    private final CompletableFuture<Void> firstReady = new CompletableFuture<>();

    private volatile C current;
    private volatile String problem = "";
    private Thread thread; // of the current connection
    private boolean closing;
    private long pauseMs = FIRST_PAUSE_MS;
    private int failures;

    /** @param doing what the connections do, as a verb for people */
    KafkaClient(LinkConfig link, String doing, Function<LogConnection.Watch, C> create) {
        this.link = link;
        this.doing = doing;
        this.create = create;
        this.owner =
                new ScheduledThreadPoolExecutor(
                        1, task -> newThread(task, THREADS + link.clientId()));
        owner.setRemoveOnCancelPolicy(true);
        owner.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
    }

    /** With our own class loader: that of a job must not be kept by a thread. */
    private static Thread newThread(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        thread.setContextClassLoader(KafkaClient.class.getClassLoader());
        return thread;
    }

    @Override
    public void start() {
        connect();
    }

    @Override
    public C current() {
        return current;
    }

    @Override
    public boolean isConnected() {
        C connection = current;
        return connection != null && connection.isReady();
    }

    @Override
    public String problem() {
        return problem;
    }

    @Override
    public void awaitReady() {
        try {
            long timeoutMs = Long.getLong(READY_TIMEOUT_PROPERTY, READY_TIMEOUT_MS);
            firstReady.get(timeoutMs, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (TimeoutException e) {
            LOG.warn("going on without {}: {}; trying again", link, problem);
        } catch (ExecutionException e) {
            throw new IllegalStateException(e); // it is never completed with an error
        }
    }

    @Override
    public Executor networkThread() {
        return owner;
    }

    @Override
    public void schedule(long delayMs, Runnable task) {
        try {
            owner.schedule(task, delayMs, TimeUnit.MILLISECONDS);
        } catch (RejectedExecutionException e) {
            LOG.debug("the client of {} is closed", link);
        }
    }

    @Override
    public void close() {
        Thread last;
        C connection;
        synchronized (this) {
            closing = true;
            last = thread;
            connection = current;
        }
        if (connection != null) {
            connection.leave();
            join(last);
        }
        owner.shutdown();
    }

    private synchronized void connect() {
        if (closing) {
            return;
        }
        try {
            C next = create.apply(new Events());
            thread = newThread(next, THREADS + "link-" + link.clientId());
            current = next; // before it reports anything
            thread.start();
        } catch (Throwable e) { // there may be no memory for another thread now
            noteEnd(LogConnection.asException(e));
        }
    }

    private synchronized void noteReady() {
        LOG.info("connected to {} as {}", link, link.clientId());
        problem = "";
        pauseMs = FIRST_PAUSE_MS;
        failures = 0;
    }

    private synchronized void noteEnd(RuntimeException cause) {
        if (closing) {
            return;
        }
        if (failures++ % LOG_EVERY == 0) {
            LOG.warn("cannot {} {}: {}; trying again", doing, link, cause.toString());
        }
        Throwable root = cause;
        while (root.getCause() != null && root.getCause() != root) {
            root = root.getCause();
        }
        problem = "cannot %s %s: %s".formatted(doing, link, explain(root));
        long pause = pauseMs;
        pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2);
        schedule(
                pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2 + 1), this::connect);
    }

    /** What lasts until somebody changes credentials or permissions is said as MQTT's readers do. */
    private static String explain(Throwable root) {
        String why = root.getMessage() == null ? root.toString() : root.getMessage();
        if (root instanceof SaslAuthenticationException
                || root instanceof UnsupportedSaslMechanismException) {
            return "the broker refuses the login: AUTHENTICATION_FAILED (%s)".formatted(why);
        }
        if (root instanceof AuthorizationException) {
            return "the broker refuses access: NOT_AUTHORIZED (%s)".formatted(why);
        }
        return why;
    }

    /** Waits also when the task was cancelled, so that what was sent gets out. */
    private static void join(Thread last) {
        boolean interrupted = false;
        long deadline = System.nanoTime() + CLOSE_TIMEOUT_MS * 1_000_000;
        long leftMs;
        while (last.isAlive() && (leftMs = (deadline - System.nanoTime()) / 1_000_000) > 0) {
            try {
                last.join(leftMs);
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (last.isAlive()) {
            LOG.warn("{} did not end within {} ms", last.getName(), CLOSE_TIMEOUT_MS);
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private final class Events implements LogConnection.Watch {
        @Override
        public void onReady(LogConnection connection) {
            noteReady();
            firstReady.complete(null);
        }

        @Override
        public void onEnd(LogConnection connection, RuntimeException cause) {
            noteEnd(cause);
        }
    }
}
