package io.speck.link.protocol;

import java.io.Serializable;

/**
 * How many records of a sink go into one message.
 *
 * @param records the most in one message; 1: each record has a message of its own
 * @param lingerMs how long the first record may wait for others; a checkpoint does not wait. It has
 *     no meaning under exactly_once, where all records wait for the checkpoint
 * @param zstd compress messages, where that makes them smaller
 */
public record Batching(int records, int lingerMs, boolean zstd) implements Serializable {
    public static final Batching OFF = new Batching(1, 0, false);
    public static final int MAX_LINGER_MS = 60_000;

    public boolean isOn() {
        return records > 1 || zstd;
    }
}
