package io.speck.link.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class SizesTest {
    @Test
    void lengthsGrowASevenBitsAByte() {
        assertEquals(1, Sizes.lengthOf(0));
        assertEquals(1, Sizes.lengthOf(127));
        assertEquals(2, Sizes.lengthOf(128));
        assertEquals(2, Sizes.lengthOf(16_383));
        assertEquals(3, Sizes.lengthOf(16_384));
        assertEquals(4, Sizes.lengthOf(268_435_455));
    }

    @Test
    void digitsAreDecimal() {
        assertEquals(1, Sizes.digitsOf(0));
        assertEquals(1, Sizes.digitsOf(9));
        assertEquals(2, Sizes.digitsOf(10));
        assertEquals(19, Sizes.digitsOf(Long.MAX_VALUE));
    }
}
