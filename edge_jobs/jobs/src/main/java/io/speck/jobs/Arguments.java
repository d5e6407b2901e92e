package io.speck.jobs;

import io.speck.mqtt.Parameters;
import io.speck.mqtt.SpeckJob;
import java.util.HashSet;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What becomes of arguments in all jobs. */
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
}
