package io.speck.mqtt.sink;

import io.speck.mqtt.connection.LinkProblem.Guilt;

/**
 * Finds the message because of which connections end.
 *
 * <p>A broker, or a proxy before it, may end the connection at one message: too large, malformed in
 * its eyes. Sent again over the next connection, that message would end it, too, and all behind it
 * would go out again and again. The message that was the first without an answer at two ends in a
 * row is sent alone; if that ends the connection, too, it is the one. A connection that is closed
 * without a reason may belong to a broker that is killed, so it is tried more often then. Not
 * thread-safe.
 */
final class EndingMessage {
    private static final int SUSPECT_ENDS = 2;
    private static final int CLOSED_ALONE = 3;

    private SinkMessage first;
    private int ends;
    private int endsAlone;

    /** Whether only one message may be under way. */
    boolean sendsAlone() {
        return ends >= SUSPECT_ENDS;
    }

    /**
     * A connection has ended.
     *
     * @param unanswered the first message that was sent over it and has no answer
     * @return whether the connection ended because of this message
     */
    boolean noteEnd(SinkMessage unanswered, Guilt guilt) {
        if (guilt == Guilt.NONE) {
            return false;
        }
        if (first == null || !isSame(first, unanswered)) {
            first = unanswered;
            ends = 0;
            endsAlone = 0;
        }
        endsAlone += sendsAlone() ? 1 : 0;
        ends++;
        return endsAlone >= (guilt == Guilt.CERTAIN ? 1 : CLOSED_ALONE);
    }

    /** A message has an answer. */
    void noteAnswer(SinkMessage message) {
        if (first != null && isSame(first, message)) {
            forget();
        }
    }

    void forget() {
        first = null;
        ends = 0;
        endsAlone = 0;
    }

    private static boolean isSame(SinkMessage one, SinkMessage other) {
        return one == other
                || (one.epoch() != null
                        && one.epoch().equals(other.epoch())
                        && one.number() == other.number()
                        && one.count() == other.count());
    }
}
