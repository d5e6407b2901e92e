package io.speck.spark;

import io.speck.link.JobContract;
import io.speck.spark.sink.LinkWriteBuilder;
import io.speck.spark.source.LinkScan;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The data source {@code speck}: a link as a stream of rows with one column, {@code value}.
 *
 * <p>Its options are the arguments of the job contract, without their dashes; see {@link
 * JobContract}. Reading needs those of the source and writing those of the sink, but each may be
 * given all of them.
 */
public final class LinkProvider implements TableProvider, DataSourceRegister {
    @Override
    public String shortName() {
        return "speck";
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return LinkScan.SCHEMA;
    }

    @Override
    public Table getTable(
            StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new LinkTable();
    }

    private static final class LinkTable implements SupportsRead, SupportsWrite {
        @Override
        public String name() {
            return "speck";
        }

        @Override
        @Deprecated
        public StructType schema() {
            return LinkScan.SCHEMA;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(
                    TableCapability.MICRO_BATCH_READ,
                    TableCapability.STREAMING_WRITE,
                    TableCapability.ACCEPT_ANY_SCHEMA); // its builder says what it takes
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> new LinkScan(OpenLinks.parse(options));
        }

        @Override
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new LinkWriteBuilder(OpenLinks.parse(info.options()), info);
        }
    }
}
