package io.speck.spark.windows;

import io.speck.jobs.Detection;
import io.speck.jobs.IdRanges;
import io.speck.jobs.Results;
import io.speck.jobs.Windows;
import io.speck.link.Parameters;
import java.io.IOException;
import java.io.Serializable;

/** What becomes of the detections of a window. */
interface Statistic extends Serializable {
    /** The name by which programs ask for it. */
    String name();

    /** Returns the group of a detection: each has windows of its own. */
    String groupOf(Detection detection);

    /** Adds a detection to its window; returns false when it has been counted before. */
    boolean add(OpenWindow window, Detection detection);

    /** Returns a window's result as a record. */
    byte[] toRecord(long startMs, String group, OpenWindow window) throws IOException;

    /**
     * Returns the statistic that a program asks for.
     *
     * @throws IllegalArgumentException when there is none of that name
     */
    static Statistic of(String name, Windows windows, Parameters parameters) {
        return switch (name) {
            case BySensor.NAME ->
                    new BySensor(
                            windows,
                            parameters.get("site", Detection.siteOf(windows.streams().get(0))));
            case OverAllSites.NAME -> new OverAllSites(windows);
            default ->
                    throw new IllegalArgumentException(
                            "cannot compute \"%s\": it must be %s or %s"
                                    .formatted(name, BySensor.NAME, OverAllSites.NAME));
        };
    }

    /** Count, mean speed and occupancy of each sensor. */
    record BySensor(Windows windows, String site) implements Statistic {
        private static final long serialVersionUID = 1L;
        private static final String NAME = "local_stats";

        @Override
        public String name() {
            return NAME;
        }

        @Override
        public String groupOf(Detection detection) {
            return detection.sensor;
        }

        @Override
        public boolean add(OpenWindow window, Detection detection) {
            window.totals.add(detection);
            return true;
        }

        @Override
        public byte[] toRecord(long startMs, String group, OpenWindow window) throws IOException {
            return Results.ofSensor(site, group, startMs, windows, window.totals);
        }
    }

    /**
     * Count and mean speed over all sites, counts of each site and of each type of vehicle; a
     * detection (stream and id) counts once in its window.
     */
    record OverAllSites(Windows windows) implements Statistic {
        private static final long serialVersionUID = 1L;
        private static final String NAME = "merge";

        @Override
        public String name() {
            return NAME;
        }

        @Override
        public String groupOf(Detection detection) {
            return "";
        }

        @Override
        public boolean add(OpenWindow window, Detection detection) {
            IdRanges counted = window.ids.computeIfAbsent(detection.stream, any -> new IdRanges());
            if (!counted.add(detection.id)) {
                return false;
            }
            window.totals.add(detection);
            window.sites.merge(Detection.siteOf(detection.stream), 1L, Long::sum);
            window.types.merge(detection.type, 1L, Long::sum);
            return true;
        }

        @Override
        public byte[] toRecord(long startMs, String group, OpenWindow window) throws IOException {
            return Results.ofAllSites(
                    startMs, windows, window.totals, window.sites, window.types);
        }
    }
}
