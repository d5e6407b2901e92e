package io.speck.spark.sink;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/** Collects the rows of a partition: they go to the driver, which numbers and publishes them. */
final class RowCollector implements DataWriter<InternalRow> {
    private final boolean isText;
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private final DataOutputStream out = new DataOutputStream(bytes);

    private RowCollector(boolean isText) {
        this.isText = isText;
    }

    /**
     * The rows of a partition.
     *
     * @param packed each with its length before it
     */
    record Rows(byte[] packed) implements WriterCommitMessage {
        private static final long serialVersionUID = 1L;

        /** What is done with a row. */
        interface Taker {
            void take(byte[] row) throws IOException, InterruptedException;
        }

        void forEach(Taker taker) throws IOException, InterruptedException {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(packed));
            while (in.available() > 0) {
                taker.take(in.readNBytes(in.readInt()));
            }
        }
    }

    /** @param isText whether the values of rows are text, which is written as UTF-8 */
    record Factory(boolean isText) implements StreamingDataWriterFactory {
        private static final long serialVersionUID = 1L;

        @Override
        public DataWriter<InternalRow> createWriter(int partition, long task, long batch) {
            return new RowCollector(isText);
        }
    }

    @Override
    public void write(InternalRow row) throws IOException {
        if (row.isNullAt(0)) {
            throw new IllegalArgumentException(
                    "cannot write a row to a link: its value is null; leave such rows out");
        }
        byte[] value = isText ? row.getUTF8String(0).getBytes() : row.getBinary(0);
        out.writeInt(value.length);
        out.write(value);
    }

    @Override
    public WriterCommitMessage commit() {
        return new Rows(bytes.toByteArray());
    }

    @Override
    public void abort() {}

    @Override
    public void close() {}
}
