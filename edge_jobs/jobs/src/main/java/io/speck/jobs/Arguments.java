package io.speck.jobs;

import io.speck.mqtt.Parameters;
import io.speck.mqtt.SpeckJob;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Reads arguments that several jobs have. */
final class Arguments {
    private static final Logger LOG = LoggerFactory.getLogger(Arguments.class);

    private Arguments() {}

    /** Logs arguments that neither a job nor the connector knows: they are without effect. */
    static void logUnknown(Parameters parameters, String... known) {
        Set<String> names = new HashSet<>(parameters.asMap().keySet());
        names.removeAll(SpeckJob.ARGUMENTS);
        names.removeAll(Set.of(known));
        if (!names.isEmpty()) {
            LOG.info("Arguments without effect: {}", names);
        }
    }

    /**
     * Returns the declared streams.
     *
     * @throws IllegalArgumentException when there is none
     */
    static List<String> getStreams(Parameters parameters) {
        List<String> streams = parameters.getList("streams");
        if (streams.isEmpty()) {
            throw new IllegalArgumentException(
                    "cannot use --streams \"\": it must name at least one stream, as in A1,A2");
        }
        return streams;
    }

    /**
     * Returns a duration of at least a millisecond.
     *
     * @throws IllegalArgumentException when it is shorter
     */
    static long getPositiveMillis(Parameters parameters, String name, Duration otherwise) {
        long millis = parameters.getDuration(name, otherwise).toMillis();
        if (millis < 1) {
            throw new IllegalArgumentException(
                    "cannot use --" + name + " \"" + parameters.get(name) + "\": it must be > 0");
        }
        return millis;
    }
}
