package io.speck.mqtt;

/**
 * What one message of a sink carries: one record as it is, or several together.
 *
 * @param count of the records
 */
record Parcel(Form form, int count, byte[] payload) {
    /** How the records lie in the payload; the message's content type tells it. */
    enum Form {
        /** One record, nothing else, and no content type. */
        PLAIN(""),
        /** Of each record its length (7 bits a byte, lowest first) and its bytes. */
        FRAMED("speck/batch"),
        /** The length of the same, as above, and then that as a zstd frame. */
        ZSTD("speck/batch+zstd");

        final String contentType;

        Form(String contentType) {
            this.contentType = contentType;
        }
    }

    private static final int CONTENT_TYPE = 1 + 2; // the property's number, its length

    /** As many records as a message may carry. */
    static final int MOST_RECORDS = 10_000;

    /** What a reader unpacks at most. */
    static final int MOST_BYTES = 16 << 20;

    /** The most that a message with several records takes besides payload and plain stamp. */
    static final int MOST_PROPERTY_BYTES = propertyBytes(Form.ZSTD, MOST_RECORDS);

    static Parcel of(byte[] record) {
        return new Parcel(Form.PLAIN, 1, record);
    }

    boolean isPlain() {
        return form == Form.PLAIN;
    }

    /** What it takes in a packet besides its payload and the stamp of a plain record. */
    int propertyBytes() {
        return propertyBytes(form, count);
    }

    private static int propertyBytes(Form form, int count) {
        return form == Form.PLAIN
                ? 0
                : Stamp.countBytes(count) + CONTENT_TYPE + form.contentType.length();
    }
}
