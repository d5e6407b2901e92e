package io.speck.link.protocol;

/**
 * The content of one message of a sink: one record as it is, or a batch of several.
 *
 * @param count number of records
 */
public record Message(Format format, int count, byte[] payload) {
    /** How the records lie in the payload; the message's content type names it. */
    public enum Format {
        /** One record, nothing else, and no content type. */
        PLAIN(""),
        /** For each record its length (7 bits a byte, lowest first) and its bytes. */
        BATCH("speck/batch"),
        /** The length of the same, encoded as above, and then that as a zstd frame. */
        ZSTD_BATCH("speck/batch+zstd");

        private final String contentType;

        Format(String contentType) {
            this.contentType = contentType;
        }

        public String contentType() {
            return contentType;
        }
    }

    private static final int CONTENT_TYPE = 1 + 2; // the property's identifier, its length

    /** About what a message takes in memory besides its payload. */
    public static final int OVERHEAD_BYTES = 100;

    /** The most records that one message may carry. */
    public static final int MAX_RECORDS = 10_000;

    /** The most bytes that a reader unpacks. */
    public static final int MAX_UNPACKED_BYTES = 16 << 20;

    /**
     * The most that a batch takes in a packet besides its payload and the stamp of a plain record.
     */
    public static final int MAX_PROPERTY_BYTES =
            propertyBytes(Format.ZSTD_BATCH, MAX_RECORDS);

    /** A message of one record. */
    public static Message of(byte[] record) {
        return new Message(Format.PLAIN, 1, record);
    }

    public boolean isPlain() {
        return format == Format.PLAIN;
    }

    /** What it takes in a packet besides its payload and the stamp of a plain record. */
    public int propertyBytes() {
        return propertyBytes(format, count);
    }

    private static int propertyBytes(Format format, int count) {
        return format == Format.PLAIN
                ? 0
                : Stamp.countBytes(count) + CONTENT_TYPE + format.contentType.length();
    }
}
