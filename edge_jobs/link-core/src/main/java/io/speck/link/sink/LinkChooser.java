package io.speck.link.sink;

import java.io.Serializable;

/**
 * Chooses to which link of a port a record goes. A record that comes again after a failure may go
 * elsewhere: nothing is assumed of it.
 */
@FunctionalInterface
public interface LinkChooser extends Serializable {
    /**
     * Returns the index of a link.
     *
     * @param links how many the port has
     */
    int choose(byte[] record, int links);

    /** Takes one link after the other. */
    static LinkChooser inTurn() {
        int[] last = {-1};
        return (record, links) -> last[0] = (last[0] + 1) % links;
    }
}
