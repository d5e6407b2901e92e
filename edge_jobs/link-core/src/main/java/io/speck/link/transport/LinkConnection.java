package io.speck.link.transport;

/**
 * One connection of one client to its broker: made once, lost once, never made again.
 *
 * <p>Messages and outcomes are passed from the network's thread to the task's; the methods of
 * {@link ReaderConnection} and {@link WriterConnection} are called by the task's thread, and do not
 * wait.
 */
public interface LinkConnection {
    boolean isReady();

    boolean isEnded();

    /** Whether messages carry stamps here, so that readers can drop repeats. */
    boolean isNumbered();
}
