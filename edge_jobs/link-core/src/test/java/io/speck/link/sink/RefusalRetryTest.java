package io.speck.link.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class RefusalRetryTest {
    private static final long SECOND = 1_000_000_000L;

    private final RefusalRetry retry = new RefusalRetry(15 * SECOND);

    @Test
    void theFirstRefusalHoldsWhatIsNew() {
        assertFalse(retry.isHolding());
        assertTrue(retry.hold());
        assertTrue(retry.isHolding());
        assertFalse(retry.hold(), "it is held already");
    }

    @Test
    void aTrialWaitsForTheOutcomesOfAllThatWereSent() {
        assertFalse(retry.needsTrial(false), "nothing is refused");
        retry.hold();
        assertFalse(retry.needsTrial(true));
        assertTrue(retry.needsTrial(false));
        retry.schedule();
        assertFalse(retry.needsTrial(false), "one is enough");
        retry.begin();
        assertTrue(retry.needsTrial(false), "if it is refused again");
    }

    @Test
    void pausesGrowUntilATrialIsAccepted() {
        retry.hold();
        long pause = RefusalRetry.FIRST_PAUSE_MS;
        for (int i = 0; i < 10; i++) {
            assertEquals(pause, retry.schedule());
            pause = Math.min(RefusalRetry.MAX_PAUSE_MS, 2 * pause);
        }
        assertEquals(RefusalRetry.MAX_PAUSE_MS, pause);
        assertTrue(retry.accept(false));
        assertFalse(retry.isHolding());
        assertEquals(RefusalRetry.FIRST_PAUSE_MS, retry.schedule());
    }

    @Test
    void whatWasSentBeforeTheRefusedDoesNotEndTheHolding() {
        retry.hold();
        assertFalse(retry.accept(true));
        assertTrue(retry.isHolding());
        assertTrue(retry.accept(false));
        assertFalse(retry.accept(false), "nothing is held any more");
    }

    @Test
    void aPauseIsShortAgainWhenTheReasonMayBeGone() {
        retry.hold();
        retry.schedule();
        retry.schedule();
        retry.shortenPause();
        assertEquals(RefusalRetry.FIRST_PAUSE_MS, retry.schedule());
    }

    @Test
    void aNewConnectionHoldsNothing() {
        retry.hold();
        retry.release();
        assertFalse(retry.isHolding());
    }

    @Test
    void patienceCountsFromTheFirstUnreadMessageInARow() {
        assertFalse(retry.noteUnread(10 * SECOND));
        assertFalse(retry.noteUnread(25 * SECOND));
        assertTrue(retry.noteUnread(25 * SECOND + 1));
        retry.noteRead();
        assertFalse(retry.noteUnread(26 * SECOND));
        assertFalse(retry.noteUnread(41 * SECOND));
        assertTrue(retry.noteUnread(42 * SECOND));
    }

    @Test
    void acceptingWhatNobodyReadDoesNotRenewThePatience() {
        retry.noteUnread(0);
        assertTrue(retry.noteUnread(16 * SECOND));
        retry.accept(false);
        assertTrue(retry.noteUnread(16 * SECOND), "the rest need not wait for as long");
    }
}
