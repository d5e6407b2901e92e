package io.speck.mqtt.protocol;

/** The topics beside the data on which speck's control plane, readers and sinks talk of links. */
public final class Topics {
    /** Retained: the numbers that a reader has taken, by its client id. */
    public static final String TAKEN = "speck/taken/";

    /** Retained: the last number of a sink that the broker has taken, by its client id. */
    public static final String SENT = "speck/sent/";

    /** Retained: whether a topic has readers, {@link #SOME} or {@link #NONE}. */
    public static final String READERS = "speck/readers/";

    /**
     * The control plane's marks for a reader, by its client id. They go through its session, behind
     * what waits there for it.
     */
    public static final String MARKS = "speck/marks/";

    public static final String SOME = "some";
    public static final String NONE = "none";

    /** Published below {@link #READERS}, not retained, by a reader that has lost its session. */
    public static final String AGAIN = "again";

    private Topics() {}
}
