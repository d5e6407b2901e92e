package io.speck.jobs;

/**
 * The sums of a window.
 *
 * <p>A plain class with public fields: Flink then serializes it by field, without Kryo.
 */
public final class Totals {
    /** Revision before anything was emitted. */
    public static final int NOT_EMITTED = -1;

    public long count;
    public double speedSum;

    /** Time that vehicles covered the sensor, in milliseconds. */
    public double coveredMs;

    /** Revision of the newest result that was emitted. */
    public int revision = NOT_EMITTED;

    public Totals() {}

    public void add(Detection detection) {
        count++;
        speedSum += detection.speedMps;
        coveredMs += detection.lengthM / detection.speedMps * 1000;
    }

    public double meanSpeedMps() {
        return speedSum / count;
    }
}
