package io.speck.spark.source;

import java.io.DataInputStream;
import java.io.IOException;
import java.nio.file.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * The segments of a batch, which one task reads in their order.
 *
 * @param folder of the spool
 */
record SegmentRange(String folder, long first, long last) implements InputPartition {

    /** Reads them where the task runs. */
    static final class Factory implements PartitionReaderFactory {
        private static final long serialVersionUID = 1L;

        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            return new Reader((SegmentRange) partition);
        }
    }

    private static final class Reader implements PartitionReader<InternalRow> {
        private final Path folder;
        private final long last;
        private long next;
        private DataInputStream segment; // null: none is open
        private int left; // records of it
        private byte[] record;

        Reader(SegmentRange range) {
            folder = Path.of(range.folder);
            next = range.first;
            last = range.last;
        }

        @Override
        public boolean next() throws IOException {
            while (left == 0) {
                close();
                if (next > last) {
                    return false;
                }
                segment = Spool.openSegment(folder, next++);
                Spool.readState(segment);
                left = segment.readInt();
            }
            record = new byte[segment.readInt()];
            segment.readFully(record);
            left--;
            return true;
        }

        @Override
        public InternalRow get() {
            return new GenericInternalRow(new Object[] {record});
        }

        @Override
        public void close() throws IOException {
            if (segment != null) {
                segment.close();
                segment = null;
            }
        }
    }
}
