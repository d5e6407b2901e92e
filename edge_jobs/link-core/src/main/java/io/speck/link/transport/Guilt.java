package io.speck.link.transport;

/** Whether a connection ended because of a message that was sent over it. */
public enum Guilt {
    /** The broker says so. */
    CERTAIN,
    /** It was closed, which is also what a broker does that is killed. */
    POSSIBLE,
    /** It ended for another reason. */
    NONE
}
