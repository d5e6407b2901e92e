package io.speck.link.transport;

/** What a job promises about each message between its source and its sink. */
public enum Delivery {
    /** QoS 0, no acknowledgements: fast, and whatever is under way at a failure is lost. */
    AT_MOST_ONCE,
    /** QoS 1, acknowledged and flushed at checkpoints. */
    AT_LEAST_ONCE,
    /**
     * QoS 1; records are kept in checkpoints and published when these are complete, under numbers
     * by which readers drop repeats.
     */
    EXACTLY_ONCE;

    /** Reads the value of {@code --delivery}. */
    public static Delivery parse(String text) {
        return switch (text) {
            case "at_most_once" -> AT_MOST_ONCE;
            case "at_least_once" -> AT_LEAST_ONCE;
            case "exactly_once" -> EXACTLY_ONCE;
            default ->
                    throw new IllegalArgumentException(
                            "cannot use --delivery \""
                                    + text
                                    + "\": it must be at_most_once, at_least_once or exactly_once");
        };
    }

    public boolean isAcknowledged() {
        return this != AT_MOST_ONCE;
    }
}
