package io.speck.link.sink;

import io.speck.link.transport.Guilt;

/**
 * Finds the message because of which connections end.
 *
 * <p>A broker, or a proxy before it, may end the connection at one message: too large, malformed in
 * its eyes. Sent again over the next connection, that message would end it, too, and all behind it
 * would go out again and again. Each message that never had an answer may be the one: after two
 * ends they are sent one by one until so many have an answer, and the one that then ends the
 * connection is found. (Which was the first without an answer at several ends says nothing: when
 * the broker is slow, the first is each time the first that was sent.) What had an answer and is
 * sent again is none of them. A connection that is closed without a reason may belong to a broker
 * that is killed, so it is tried more often then. Not thread-safe.
 */
final class EndingMessage {
    private static final int SUSPECT_ENDS = 2;
    private static final int CLOSED_ALONE = 3;

    private long suspects; // how many answers it takes until none of them can be the one
    private int ends;
    private SinkMessage alone; // that ended the last connection on which they went one by one
    private int endsAlone;

    /** Whether a message that never had an answer may only be under way alone. */
    boolean sendsAlone() {
        return ends >= SUSPECT_ENDS;
    }

    /**
     * A connection has ended.
     *
     * @param unanswered the first message that was sent over it and has no answer
     * @param count how many were sent over it and never had an answer
     * @return whether the connection ended because of this message
     */
    boolean noteEnd(SinkMessage unanswered, long count, Guilt guilt) {
        if (guilt == Guilt.NONE || count == 0) {
            return false;
        }
        if (sendsAlone() && !unanswered.kept) {
            endsAlone = alone != null && isSame(alone, unanswered) ? endsAlone + 1 : 1;
            alone = unanswered;
        }
        suspects = Math.max(suspects, count);
        ends++;
        return endsAlone >= (guilt == Guilt.CERTAIN ? 1 : CLOSED_ALONE);
    }

    /** A message that never had an answer has one. */
    void noteAnswer() {
        if (suspects > 0 && --suspects == 0) {
            forget();
        }
    }

    void forget() {
        suspects = 0;
        ends = 0;
        alone = null;
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
