package io.speck.link.protocol;

/** What a broker says that it has of a sink's records. */
public interface SentRecords {
    /** Whether it has all records of an epoch from one number to another. */
    boolean covers(ProducerEpoch epoch, long first, long last);

    /** Whether it has the record of that number of an epoch, or a later one of the epoch. */
    boolean reaches(ProducerEpoch epoch, long number);

    /**
     * Whether it may lack some that were sent before others that it has: it has refused them, and
     * the connection ended before they were sent again.
     */
    boolean mayHaveGaps();
}
