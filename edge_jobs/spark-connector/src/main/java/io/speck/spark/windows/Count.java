package io.speck.spark.windows;

import java.util.Locale;

/** What is counted of a batch, by the names of the Flink jobs' metrics. */
enum Count {
    MALFORMED,
    IMPOSSIBLE,
    UNDECLARED,
    JUMPS,
    CORRECTIONS,
    LATE_DROPPED,
    REPEATS;

    String columnName() {
        return name().toLowerCase(Locale.ROOT);
    }
}
