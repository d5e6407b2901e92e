package io.speck.mqtt;

/** The numbers of one epoch of one producer, which rise from 1. */
record Series(String producer, long epoch, String prefix) {
    static Series of(String producer, long epoch) {
        return new Series(producer, epoch, Stamp.prefix(producer, epoch));
    }
}
