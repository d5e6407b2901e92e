package io.speck.mqtt.connection;

import java.nio.charset.StandardCharsets;

/** The topics beside the data on which speck's control plane, readers and sinks talk of links. */
public final class Topics {
    /** Retained: the numbers that a reader has taken, by its client id. */
    public static final String TAKEN = "speck/taken/";

    /** Retained: the last number of a sink that the broker has taken, by its client id. */
    public static final String SENT = "speck/sent/";

    /** Retained: whether a topic has readers, {@link #SOME} or {@link #NONE}. */
    public static final String READERS = "speck/readers/";

    /**
     * Retained, below the link's topic, by client id: the session of a reader. It is written after
     * the session is made, and a broker saves both at the same moment: after it was killed it has
     * the session if, and only if, it has this.
     */
    public static final String SESSIONS = "speck/sessions/";

    /**
     * The control plane's marks for a reader, by its client id. They go through its session, behind
     * what waits there for it.
     */
    public static final String MARKS = "speck/marks/";

    public static final String SOME = "some";
    public static final String NONE = "none";

    /** Published below {@link #READERS}, not retained, by a reader that has lost its session. */
    public static final String AGAIN = "again";

    /**
     * Published below {@link #READERS}, not retained, by the control plane: there are no other
     * sessions of the link than those that the broker has.
     */
    public static final String COMPLETE = "complete";

    private static final String MADE = "made";

    private Topics() {}

    /** Returns the topic on which a reader's session is announced. */
    public static String ofSession(String topic, String clientId) {
        return SESSIONS + topic + "/" + clientId;
    }

    /** Returns what is announced there. */
    public static byte[] sessionMade() {
        return MADE.getBytes(StandardCharsets.UTF_8);
    }
}
