package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class LingerTimerTest {
    private final ManualLoop clock = new ManualLoop();
    private int over;

    private LingerTimer linger(long ms) {
        return new LingerTimer(clock, ms, () -> over++);
    }

    @Test
    void isOverOnceItsTimeHasPassed() throws Exception {
        LingerTimer linger = linger(50);
        clock.setCurrentTime(1000);
        linger.start();
        clock.setCurrentTime(1049);
        assertEquals(0, over);
        clock.setCurrentTime(1050);
        assertEquals(1, over);
        clock.setCurrentTime(5000);
        assertEquals(1, over);
    }

    @Test
    void aMessageThatWasFullHasNoEndOfItsOwnAndNeedsNoTimerOfItsOwn() throws Exception {
        LingerTimer linger = linger(50);
        clock.setCurrentTime(1000);
        for (int i = 0; i < 100; i++) {
            linger.start();
            linger.cancel();
        }
        assertEquals(1, clock.getNumActiveTimers());
        clock.setCurrentTime(1040);
        linger.start();
        clock.setCurrentTime(1050);
        assertEquals(0, over, "this one is due at 1090");
        clock.setCurrentTime(1090);
        assertEquals(1, over);
        assertEquals(0, clock.getNumActiveTimers());
    }
}
