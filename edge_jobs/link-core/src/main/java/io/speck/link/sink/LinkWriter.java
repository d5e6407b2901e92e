package io.speck.link.sink;

import java.io.IOException;
import java.util.List;

/**
 * Writes the records of one sink to its link. All methods are called by one thread of the engine,
 * which at a checkpoint calls {@link #flush}, {@link #prepareCommit} and {@link #snapshot}.
 */
public interface LinkWriter extends AutoCloseable {
    /** Takes a record, and waits while there is no room for it. */
    void write(byte[] record) throws InterruptedException, IOException;

    /** Returns when the broker has all that it is to have before a checkpoint. */
    void flush() throws InterruptedException, IOException;

    /** Returns what is to be published when the next checkpoint is complete. */
    List<Committable> prepareCommit();

    /** Returns what a checkpoint keeps of the writer: a state for each link. */
    List<SinkState> snapshot();

    /** Ends it; what was not written before stays in the last checkpoint. */
    @Override
    void close();
}
