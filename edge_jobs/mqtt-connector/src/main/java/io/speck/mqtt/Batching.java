package io.speck.mqtt;

import java.io.Serializable;

/**
 * How many records of a sink go into one message.
 *
 * @param records at most; 1: each has one of its own
 * @param lingerMs how long the first may wait for others; a checkpoint does not wait. Of no meaning
 *     under exactly_once, where all wait for the checkpoint
 * @param zstd compress messages, where that makes them smaller
 */
record Batching(int records, int lingerMs, boolean zstd) implements Serializable {
    static final Batching OFF = new Batching(1, 0, false);
    static final int LONGEST_LINGER_MS = 60_000;

    /** Reads the arguments {@code --batch-records}, {@code --linger-ms}, {@code --compression}. */
    static Batching of(Parameters parameters) {
        return new Batching(
                within(parameters, "batch-records", 1, Parcel.MOST_RECORDS),
                within(parameters, "linger-ms", 0, LONGEST_LINGER_MS),
                switch (parameters.get("compression", "none")) {
                    case "none" -> false;
                    case "zstd" -> true;
                    default ->
                            throw new IllegalArgumentException(
                                    "cannot use --compression \""
                                            + parameters.get("compression")
                                            + "\": it must be none or zstd");
                });
    }

    boolean isOn() {
        return records > 1 || zstd;
    }

    private static int within(Parameters parameters, String name, int least, int most) {
        int value = parameters.getInt(name, least);
        if (value < least || value > most) {
            throw new IllegalArgumentException(
                    "cannot use --%s %d: it must be %d to %d".formatted(name, value, least, most));
        }
        return value;
    }
}
