package io.speck.link.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.speck.link.protocol.LogPosition;
import io.speck.link.protocol.TakenNumbers;
import io.speck.link.source.PendingCheckpoints.Coverage;
import org.junit.jupiter.api.Test;

class PendingCheckpointsTest {
    private final PendingCheckpoints checkpoints = new PendingCheckpoints();

    private void add(long checkpoint) {
        checkpoints.add(
                new Coverage(checkpoint, null, 10 * checkpoint, new TakenNumbers(), LogPosition.NONE, null, 0));
    }

    @Test
    void aCompleteCheckpointCoversWhatThoseBeforeItDo() {
        add(1);
        add(2);
        add(4);
        assertEquals(20, checkpoints.complete(3).arrivals());
        assertEquals(1, checkpoints.size());
        assertNull(checkpoints.complete(3), "nothing is new");
        assertEquals(40, checkpoints.complete(4).arrivals());
    }

    @Test
    void anAbortedOneIsForgotten() {
        add(1);
        add(2);
        checkpoints.abort(2);
        assertEquals(10, checkpoints.complete(2).arrivals());
        assertEquals(0, checkpoints.size());
    }
}
