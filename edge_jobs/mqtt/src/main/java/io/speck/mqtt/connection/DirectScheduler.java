package io.speck.mqtt.connection;

import io.reactivex.Scheduler;
import io.reactivex.disposables.Disposable;
import io.reactivex.disposables.Disposables;
import java.util.concurrent.TimeUnit;

/**
 * Runs everything at once, on the calling thread. With it the client library hands messages over on
 * its network thread, and starts no threads of its own. Delays are not supported, nor needed.
 */
final class DirectScheduler extends Scheduler {
    static final DirectScheduler INSTANCE = new DirectScheduler();

    private DirectScheduler() {}

    @Override
    public Worker createWorker() {
        return new DirectWorker();
    }

    private static final class DirectWorker extends Worker {
        private volatile boolean disposed;

        @Override
        public Disposable schedule(Runnable task, long delay, TimeUnit unit) {
            if (delay > 0) {
                throw new UnsupportedOperationException("cannot delay a task");
            }
            if (!disposed) {
                task.run();
            }
            return Disposables.disposed();
        }

        @Override
        public void dispose() {
            disposed = true;
        }

        @Override
        public boolean isDisposed() {
            return disposed;
        }
    }
}
