package io.speck.link.protocol;

/** Computes how many bytes numbers take, for the sizes of what goes over the wire. */
public final class Sizes {
    private Sizes() {}

    /** Returns how many bytes a number takes at seven bits each. */
    public static int lengthOf(int number) {
        int bytes = 1;
        for (int left = number >>> 7; left > 0; left >>>= 7) {
            bytes++;
        }
        return bytes;
    }

    /** Returns how many decimal digits a non-negative number has. */
    public static int digitsOf(long number) {
        int digits = 1;
        for (long left = number; left >= 10; left /= 10) {
            digits++;
        }
        return digits;
    }
}
