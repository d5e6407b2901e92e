package io.speck.mqtt;

/** What a job promises about each message between its source and its sink. */
enum Delivery {
    /** QoS 0, no acknowledgements: fast, and whatever is under way at a failure is lost. */
    AT_MOST_ONCE,
    /** QoS 1, acknowledged and flushed at checkpoints. */
    AT_LEAST_ONCE;

    /** The name of the third one, which jobs may ask for but do not get yet. */
    static final String EXACTLY_ONCE = "exactly_once";

    /**
     * Reads the value of {@code --delivery}.
     *
     * <p>{@code exactly_once} is accepted and treated as {@link #AT_LEAST_ONCE}: messages are
     * numbered and readers drop the repeats of a sink's own re-sending, but records that a sink
     * published after its last checkpoint get new numbers after a failure and arrive twice.
     */
    static Delivery parse(String text) {
        return switch (text) {
            case "at_most_once" -> AT_MOST_ONCE;
            case "at_least_once", EXACTLY_ONCE -> AT_LEAST_ONCE;
            default ->
                    throw new IllegalArgumentException(
                            "cannot use --delivery \""
                                    + text
                                    + "\": it must be at_most_once, at_least_once or exactly_once");
        };
    }

    boolean acknowledged() {
        return this != AT_MOST_ONCE;
    }
}
