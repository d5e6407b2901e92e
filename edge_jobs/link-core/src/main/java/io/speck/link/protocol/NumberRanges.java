package io.speck.link.protocol;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The numbers taken from one epoch of one producer, as disjoint, rising ranges that do not touch.
 *
 * <p>Nearly always there is one range. More appear when messages come out of order: a sink that
 * found no reader for some sends them again later, when those after them have been taken.
 *
 * <p>At most {@value #MAX_RANGES} ranges are kept. Beyond that the oldest hole is closed: its
 * numbers count as lost, and are taken for repeats should they come after all.
 */
final class NumberRanges {
    static final int MAX_RANGES = 1000;

    private long[] bounds; // first, last, first, last, ...
    private int size; // how many of them are in use
    private long lost; // numbers of holes that are not kept
    private long start = Long.MIN_VALUE; // holes below it are none: the numbers were not for us
    private boolean away; // the next number above the highest begins anew

    NumberRanges() {
        this(new long[2], 0);
    }

    private NumberRanges(long[] bounds, int size) {
        this.bounds = bounds;
        this.size = size;
    }

    NumberRanges copy() {
        NumberRanges copy = new NumberRanges(Arrays.copyOf(bounds, Math.max(2, size)), size);
        copy.lost = lost;
        copy.start = start;
        copy.away = away;
        return copy;
    }

    /**
     * Notes that the reader has another link now. Nobody knows what went over it meanwhile: a gap
     * between the highest number and the next one is no loss. Numbers in the gap are still taken.
     */
    void leave() {
        away = size > 0;
    }

    boolean isAway() {
        return away;
    }

    /**
     * Adds what another reader has taken of the link: all numbers up to one, and the ranges above.
     * After that it is known what went over the link, so a gap that follows is a loss.
     */
    void takeOver(long upTo, List<HandOver.Range> above) {
        away = false;
        if (start <= upTo + 1) {
            start = Long.MIN_VALUE; // there are no holes below it any more
        }
        addAll(0, upTo);
        above.forEach(range -> addAll(range.first(), range.last()));
    }

    private void addAll(long first, long last) {
        int from = 0;
        while (from < size && bounds[from + 1] + 1 < first) {
            from += 2;
        }
        int to = from;
        while (to < size && bounds[to] <= last + 1) {
            to += 2;
        }
        // now ranges from `from` until `to` overlap the new one, or touch it
        if (from == to) {
            insert(from, first, last);
            return;
        }
        bounds[from] = Math.min(bounds[from], first);
        bounds[from + 1] = Math.max(bounds[to - 1], last);
        System.arraycopy(bounds, to, bounds, from + 2, size - to);
        size -= to - from - 2;
    }

    /** Adds a number; false when it was there before. */
    boolean add(long number) {
        if (away && number > highest()) {
            lost = missing();
            start = number;
            away = false;
        }
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
            insert(at, number, number);
        }
        return true;
    }

    /**
     * Returns the last number of the first range, or of the one with the new start: everything up
     * to it that was for us has been taken. 0 when empty.
     */
    long contiguous() {
        return size == 0 ? 0 : bounds[findFirst() + 1];
    }

    long highest() {
        return size == 0 ? 0 : bounds[size - 1];
    }

    /** Counts the numbers below the highest that have not come, also those of holes not kept. */
    long missing() {
        long missing = lost;
        for (int i = findFirst() + 2; i < size; i += 2) {
            missing += bounds[i] - bounds[i - 1] - 1;
        }
        return missing;
    }

    /** Counts what lies before as taken, so that a hole at the very beginning shows as missing. */
    void startAtZero() {
        add(0);
    }

    /** Returns the ranges above {@link #contiguous}. */
    List<HandOver.Range> above() {
        List<HandOver.Range> above = new ArrayList<>();
        for (int i = findFirst() + 2; i < size; i += 2) {
            above.add(new HandOver.Range(bounds[i], bounds[i + 1]));
        }
        return above;
    }

    /** Returns how many ranges {@link #above} has. */
    int rangesAbove() {
        return size == 0 ? 0 : (size - findFirst()) / 2 - 1;
    }

    void write(DataOutput out) throws IOException {
        out.writeLong(lost);
        out.writeLong(start);
        out.writeBoolean(away);
        out.writeInt(size);
        for (int i = 0; i < size; i++) {
            out.writeLong(bounds[i]);
        }
    }

    static NumberRanges read(DataInput in) throws IOException {
        long lost = in.readLong();
        long start = in.readLong();
        boolean away = in.readBoolean();
        int size = in.readInt();
        long[] bounds = new long[Math.max(2, size)];
        for (int i = 0; i < size; i++) {
            bounds[i] = in.readLong();
        }
        NumberRanges ranges = new NumberRanges(bounds, size);
        ranges.lost = lost;
        ranges.start = start;
        ranges.away = away;
        return ranges;
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder("[");
        for (int i = 0; i < size; i += 2) {
            text.append(i == 0 ? "" : ", ").append(bounds[i]).append("..").append(bounds[i + 1]);
        }
        return text.append(']').toString();
    }

    /** Finds the first range that counts. */
    private int findFirst() {
        int at = 0;
        while (at + 2 < size && bounds[at + 1] < start) {
            at += 2;
        }
        return at;
    }

    private void closeOldestHole() {
        if (findFirst() == 0) { // else it is none
            lost += bounds[2] - bounds[1] - 1;
        }
        bounds[1] = bounds[3];
        System.arraycopy(bounds, 4, bounds, 2, size - 4);
        size -= 2;
    }

    private void insert(int at, long first, long last) {
        if (size + 2 > bounds.length) {
            bounds = Arrays.copyOf(bounds, bounds.length * 2);
        }
        System.arraycopy(bounds, at, bounds, at + 2, size - at);
        bounds[at] = first;
        bounds[at + 1] = last;
        size += 2;
        if (size > 2 * MAX_RANGES) {
            closeOldestHole();
        }
    }
}
