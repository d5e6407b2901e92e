package io.speck.mqtt.connection;

import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.util.concurrent.EventExecutor;
import io.reactivex.plugins.RxJavaPlugins;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The network threads that all connections of this JVM share. They end with the last lease, so that
 * nothing is left of a job whose class loader holds this class, and few threads serve many jobs
 * when the engine's own does.
 */
final class EventLoops implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(EventLoops.class);
    private static final int THREADS =
            Math.max(1, Math.min(4, Runtime.getRuntime().availableProcessors()));
    private static final int LINGER_MS = 500; // lets the client library finish its own clean-up

    private static NioEventLoopGroup shared;
    private static int leases;

    static {
        // by default an error without a receiver goes to the JVM's handler, and Flink's ends the
        // JVM
        RxJavaPlugins.setErrorHandler(e -> LOG.debug("error after the end of a connection", e));
        // RxJava's own schedulers keep threads for ever, and with them a fat jar's class loader;
        // none of ours is used, but they are made when the client library names one
        RxJavaPlugins.setInitIoSchedulerHandler(own -> DirectScheduler.INSTANCE);
        RxJavaPlugins.setInitComputationSchedulerHandler(own -> DirectScheduler.INSTANCE);
        RxJavaPlugins.setInitSingleSchedulerHandler(own -> DirectScheduler.INSTANCE);
        RxJavaPlugins.setInitNewThreadSchedulerHandler(own -> DirectScheduler.INSTANCE);
    }

    private final NioEventLoopGroup group;
    private boolean closed;

    private EventLoops(NioEventLoopGroup group) {
        this.group = group;
    }

    /** Leases the threads; the lease must be closed. */
    static synchronized EventLoops lease() {
        if (leases++ == 0) {
            shared = new NioEventLoopGroup(THREADS, threadFactory());
        }
        return new EventLoops(shared);
    }

    NioEventLoopGroup group() {
        return group;
    }

    /** Returns the loop that runs the calling thread. */
    EventExecutor current() {
        for (EventExecutor loop : group) {
            if (loop.inEventLoop()) {
                return loop;
            }
        }
        throw new IllegalStateException("cannot find the event loop of " + Thread.currentThread());
    }

    @Override
    public void close() {
        synchronized (EventLoops.class) {
            if (!closed) {
                closed = true;
                if (--leases == 0) {
                    shared.shutdownGracefully(LINGER_MS, 4L * LINGER_MS, TimeUnit.MILLISECONDS);
                    shared = null;
                }
            }
        }
    }

    private static ThreadFactory threadFactory() {
        AtomicInteger count = new AtomicInteger();
        return task -> {
            Thread thread = new Thread(task, "speck-mqtt-" + count.incrementAndGet());
            thread.setDaemon(true);
            // not the creating task's loader: that would keep one job's classes for all others
            thread.setContextClassLoader(EventLoops.class.getClassLoader());
            return thread;
        };
    }
}
