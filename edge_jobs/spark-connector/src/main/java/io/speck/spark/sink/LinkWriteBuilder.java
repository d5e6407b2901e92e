package io.speck.spark.sink;

import io.speck.link.JobContract;
import io.speck.spark.files.CheckpointFolder;
import java.nio.file.Path;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Writes rows to the contract's sink, in each output mode: what has been published stays, so that a
 * row that changes is published again.
 */
public final class LinkWriteBuilder implements SupportsTruncate, SupportsStreamingUpdateAsAppend {
    private final JobContract contract;
    private final Path queryFolder;
    private final boolean isText;

    /** @throws IllegalArgumentException unless the rows have one column of bytes or text */
    public LinkWriteBuilder(JobContract contract, LogicalWriteInfo info) {
        this.contract = contract;
        this.queryFolder = CheckpointFolder.parse(info.options().get("checkpointLocation"));
        this.isText = requireValue(info.schema()).equals(DataTypes.StringType);
    }

    private static DataType requireValue(StructType schema) {
        StructField[] fields = schema.fields();
        if (fields.length == 1 && fields[0].name().equals("value")) {
            DataType type = fields[0].dataType();
            if (type.equals(DataTypes.BinaryType) || type.equals(DataTypes.StringType)) {
                return type;
            }
        }
        throw new IllegalArgumentException(
                "cannot write rows of %s to a link: they must have one column, value, of type binary"
                                .formatted(schema.simpleString())
                        + " or string");
    }

    @Override
    public WriteBuilder truncate() {
        return this;
    }

    @Override
    public Write build() {
        return new Write() {
            @Override
            public String description() {
                return contract.sink().toString();
            }

            @Override
            public StreamingWrite toStreaming() {
                return new BatchedWrite(contract, queryFolder, isText);
            }
        };
    }

    /** The writing of one batch, or of several. */
    private record BatchedWrite(JobContract contract, Path queryFolder, boolean isText)
            implements StreamingWrite {
        @Override
        public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
            return new RowCollector.Factory(isText);
        }

        @Override
        public void commit(long batch, WriterCommitMessage[] messages) {
            OpenSinks.get(queryFolder, contract).commit(batch, messages);
        }

        @Override
        public void abort(long batch, WriterCommitMessage[] messages) {
            // nothing of it is anywhere
        }
    }
}
