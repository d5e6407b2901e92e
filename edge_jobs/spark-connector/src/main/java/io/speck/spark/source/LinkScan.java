package io.speck.spark.source;

import io.speck.link.JobContract;
import io.speck.spark.files.CheckpointFolder;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Reads the contract's source link. */
public final class LinkScan implements Scan {
    public static final StructType SCHEMA =
            new StructType().add("value", DataTypes.BinaryType, false);

    private final JobContract contract;

    public LinkScan(JobContract contract) {
        this.contract = contract;
    }

    @Override
    public StructType readSchema() {
        return SCHEMA;
    }

    @Override
    public String description() {
        return contract.source().toString();
    }

    /** @param location of the source: a folder in that of the query */
    @Override
    public MicroBatchStream toMicroBatchStream(String location) {
        return new LinkStream(contract, CheckpointFolder.parse(location));
    }
}
