package io.speck.mqtt;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.Arrays;

/**
 * The numbers taken from one epoch of one producer, as disjoint, rising ranges that do not touch.
 *
 * <p>Nearly always there is one. More appear when messages come out of order: a sink that found no
 * reader for some sends them again later, while the ones after them have been taken.
 */
final class NumberRanges {
    private long[] bounds; // first, last, first, last, ...
    private int size; // how many of them are in use

    NumberRanges() {
        this(new long[2], 0);
    }

    private NumberRanges(long[] bounds, int size) {
        this.bounds = bounds;
        this.size = size;
    }

    NumberRanges copy() {
        return new NumberRanges(Arrays.copyOf(bounds, Math.max(2, size)), size);
    }

    /** Whether the number was not there before. */
    boolean add(long number) {
        if (size > 0 && number == bounds[size - 1] + 1) { // the usual case
            bounds[size - 1] = number;
            return true;
        }
        int at = size;
        while (at > 0 && number < bounds[at - 2]) {
            at -= 2;
        }
        // now ranges before `at` begin at or below the number
        if (at > 0 && number <= bounds[at - 1]) {
            return false;
        }
        boolean joinsLeft = at > 0 && bounds[at - 1] + 1 == number;
        boolean joinsRight = at < size && number + 1 == bounds[at];
        if (joinsLeft && joinsRight) {
            bounds[at - 1] = bounds[at + 1];
            System.arraycopy(bounds, at + 2, bounds, at, size - at - 2);
            size -= 2;
        } else if (joinsLeft) {
            bounds[at - 1] = number;
        } else if (joinsRight) {
            bounds[at] = number;
        } else {
            insert(at, number);
        }
        return true;
    }

    /** The last number of the first range: everything up to it has been taken; 0 when empty. */
    long contiguous() {
        return size == 0 ? 0 : bounds[1];
    }

    long highest() {
        return size == 0 ? 0 : bounds[size - 1];
    }

    /** How many numbers between the first range and the highest number have not come. */
    long missing() {
        long missing = 0;
        for (int i = 2; i < size; i += 2) {
            missing += bounds[i] - bounds[i - 1] - 1;
        }
        return missing;
    }

    /** Counts what lies before as taken, so that a hole at the very beginning shows as missing. */
    void startAtZero() {
        add(0);
    }

    void write(DataOutput out) throws IOException {
        out.writeInt(size);
        for (int i = 0; i < size; i++) {
            out.writeLong(bounds[i]);
        }
    }

    static NumberRanges read(DataInput in) throws IOException {
        int size = in.readInt();
        long[] bounds = new long[Math.max(2, size)];
        for (int i = 0; i < size; i++) {
            bounds[i] = in.readLong();
        }
        return new NumberRanges(bounds, size);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof NumberRanges that
                && Arrays.equals(bounds, 0, size, that.bounds, 0, that.size);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(Arrays.copyOf(bounds, size));
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder("[");
        for (int i = 0; i < size; i += 2) {
            text.append(i == 0 ? "" : ", ").append(bounds[i]).append("..").append(bounds[i + 1]);
        }
        return text.append(']').toString();
    }

    private void insert(int at, long number) {
        if (size + 2 > bounds.length) {
            bounds = Arrays.copyOf(bounds, bounds.length * 2);
        }
        System.arraycopy(bounds, at, bounds, at + 2, size - at);
        bounds[at] = number;
        bounds[at + 1] = number;
        size += 2;
    }
}
