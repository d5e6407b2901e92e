package io.speck.link.sink;

import io.speck.link.protocol.Batching;
import java.io.Serializable;
import java.time.Duration;

/**
 * How a sink treats its records.
 *
 * @param hasReaders hold records that nobody has subscribed to, instead of letting them go; what is
 *     announced on {@code speck/readers/<topic>} takes precedence
 * @param maxRecordBytes larger records are left out and counted: a broker would close the
 *     connection at each of them, again and again
 * @param resendWindow how long acknowledged records are kept, see {@link ResendWindow}
 * @param resendBytes how many bytes of them at most; 0: 32 MiB, less in a small JVM, which has
 *     other jobs
 * @param resendStateBytes how many bytes of them a checkpoint holds at most; 0: none
 * @param batching how many go into one message
 */
public record SinkSettings(
        boolean hasReaders,
        int maxRecordBytes,
        Duration resendWindow,
        long resendBytes,
        long resendStateBytes,
        Batching batching)
        implements Serializable {
    /** Three autosave intervals of the brokers that speck sets up. */
    public static final Duration RESEND_WINDOW = Duration.ofSeconds(15);

    /** Less than what Flink can keep in a checkpoint's one file. */
    public static final long RESEND_STATE_BYTES = 1_000_000;

    private static final int ENOUGH_BATCH_BYTES = 256 << 10;
    private static final long MAX_RESEND_BYTES = 32L << 20;
    private static final int SHARE_OF_MEMORY = 16;

    /**
     * Returns how much a batch may carry, before it is compressed. More would give no more rate,
     * and a checkpoint's resend window takes whole messages only.
     */
    int maxBatchBytes() {
        return Math.min(maxRecordBytes, ENOUGH_BATCH_BYTES);
    }

    /** Returns the same settings for a broker whose transport joins records by itself. */
    SinkSettings withoutBatches() {
        return new SinkSettings(
                hasReaders,
                maxRecordBytes,
                resendWindow,
                resendBytes,
                resendStateBytes,
                Batching.OFF);
    }

    /** Creates the window; must be called where the sink runs. */
    ResendWindow newResendWindow(SinkCounters counters) {
        long share = Runtime.getRuntime().maxMemory() / SHARE_OF_MEMORY;
        long most = resendBytes > 0 ? resendBytes : Math.min(MAX_RESEND_BYTES, share);
        return new ResendWindow(resendWindow, most, resendStateBytes, counters.resendWindowCut());
    }
}
