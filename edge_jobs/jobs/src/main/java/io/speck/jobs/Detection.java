package io.speck.jobs;

/**
 * One vehicle at one sensor, or the mark that a stream has ended.
 *
 * <p>A plain class with public fields: Flink then serializes it by field, without Kryo.
 */
public final class Detection {
    /** Row number in its stream, from 1. */
    public long id;

    /** Name of the stream; its first letter is the site. */
    public String stream = "";

    /** Event time in milliseconds; of an end mark: the stream's last time. */
    public long timeMs;

    public String sensor = "";
    public double speedMps;
    public double lengthM;
    public String type = "";

    /** An end mark: nothing but stream and time counts. */
    public boolean end;

    public Detection() {}

    /** The site that a stream belongs to. */
    public static String siteOf(String stream) {
        return stream.substring(0, stream.offsetByCodePoints(0, 1));
    }

    @Override
    public String toString() {
        return (end ? "end of " : "#" + id + " of ") + stream + " at " + timeMs;
    }
}
