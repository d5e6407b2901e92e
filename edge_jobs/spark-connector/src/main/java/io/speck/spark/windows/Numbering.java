package io.speck.spark.windows;

import java.util.Iterator;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Numbers the records of a partition: behind a shuffle their order has to be made again. (Spark's
 * own function for it, {@code monotonically_increasing_id}, is refused in streams.)
 */
final class Numbering implements MapPartitionsFunction<Row, Row> {
    private static final long serialVersionUID = 1L;
    static final StructType SCHEMA =
            new StructType()
                    .add("partition", DataTypes.IntegerType, false)
                    .add("position", DataTypes.LongType, false)
                    .add("value", DataTypes.BinaryType, true);

    /** @param rows of the partition's number and a record */
    @Override
    public Iterator<Row> call(Iterator<Row> rows) {
        return new Iterator<>() {
            private long position;

            @Override
            public boolean hasNext() {
                return rows.hasNext();
            }

            @Override
            public Row next() {
                Row row = rows.next();
                return RowFactory.create(row.get(0), position++, row.get(1));
            }
        };
    }
}
