package io.speck.jobs;

import java.util.Arrays;

/**
 * A set of ids, kept as ranges: the ids of a stream come nearly in a row.
 *
 * <p>A plain class with public fields: Flink then serializes it by field, without Kryo.
 */
public final class IdRanges {
    /** First and last id of each range, ascending, ranges apart by at least 2. */
    public long[] bounds = {};

    public IdRanges() {}

    /** Adds an id; returns false when it was there. */
    public boolean add(long id) {
        int at = findRangeEndingFrom(id);
        if (2 * at < bounds.length && bounds[2 * at] <= id) {
            return false;
        }
        boolean joinsLeft = at > 0 && bounds[2 * at - 1] == id - 1;
        boolean joinsRight = 2 * at < bounds.length && bounds[2 * at] == id + 1;
        if (joinsLeft && joinsRight) {
            long[] fewer = new long[bounds.length - 2];
            System.arraycopy(bounds, 0, fewer, 0, 2 * at - 1);
            System.arraycopy(bounds, 2 * at + 1, fewer, 2 * at - 1, fewer.length - (2 * at - 1));
            bounds = fewer;
        } else if (joinsLeft) {
            bounds[2 * at - 1] = id;
        } else if (joinsRight) {
            bounds[2 * at] = id;
        } else {
            long[] more = Arrays.copyOf(bounds, bounds.length + 2);
            System.arraycopy(bounds, 2 * at, more, 2 * at + 2, bounds.length - 2 * at);
            more[2 * at] = id;
            more[2 * at + 1] = id;
            bounds = more;
        }
        return true;
    }

    /** Returns the number of the first range whose last id is not below the given one. */
    private int findRangeEndingFrom(long id) {
        int low = 0;
        int high = bounds.length / 2;
        if (high > 0 && bounds[bounds.length - 1] < id) {
            return high;
        }
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (bounds[2 * middle + 1] < id) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    @Override
    public String toString() {
        return Arrays.toString(bounds);
    }
}
