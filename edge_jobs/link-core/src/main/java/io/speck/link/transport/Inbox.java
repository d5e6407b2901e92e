package io.speck.link.transport;

import java.util.concurrent.atomic.AtomicLong;
import org.jctools.queues.atomic.SpscUnboundedAtomicArrayQueue;

/**
 * The messages that wait for a reader's task. The network thread adds them, the task's thread takes
 * them; there are no locks.
 */
public final class Inbox {
    /** How much payload may wait, whatever the Receive Maximum allows. */
    public static final long MAX_BYTES = 16 << 20;

    private static final int CHUNK = 256;

    private final SpscUnboundedAtomicArrayQueue<Object> queue =
            new SpscUnboundedAtomicArrayQueue<>(CHUNK);
    private final int maxMessages;
    private volatile long bytesAdded; // written by the network thread only
    private final AtomicLong bytesTaken = new AtomicLong();

    public Inbox(int maxMessages) {
        this.maxMessages = maxMessages;
    }

    public void add(Object message, int bytes) {
        bytesAdded = bytesAdded + bytes;
        queue.offer(message);
    }

    /** Returns the next message, or null; to be followed by {@link #release}. */
    public Object poll() {
        return queue.poll();
    }

    /** A message of that size was taken. */
    public void release(int bytes) {
        bytesTaken.lazySet(bytesTaken.getPlain() + bytes);
    }

    public boolean isEmpty() {
        return queue.isEmpty();
    }

    public boolean isFull() {
        return queue.size() >= maxMessages || waitingBytes() >= MAX_BYTES;
    }

    /** Whether no more than half of what may wait does. */
    public boolean isHalfEmpty() {
        return queue.size() <= maxMessages / 2 && waitingBytes() <= MAX_BYTES / 2;
    }

    /** Returns how much payload waits; read by any thread. */
    public long waitingBytes() {
        return bytesAdded - bytesTaken.get();
    }
}
