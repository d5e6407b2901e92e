package io.speck.spark.files;

import java.net.URI;
import java.nio.file.Path;

/** The folder in which a query keeps its checkpoint; ours lie in it, too. */
public final class CheckpointFolder {
    private CheckpointFolder() {}

    /**
     * Returns it as a path.
     *
     * @throws IllegalArgumentException unless it is a folder of this machine: what a link has taken
     *     must be on disk before its broker forgets it
     */
    public static Path parse(String location) {
        if (location == null || location.isEmpty()) {
            throw new IllegalArgumentException(
                    "cannot join a link to a query without a checkpoint: set the option"
                            + " checkpointLocation");
        }
        if (!location.contains(":")) {
            return Path.of(location).toAbsolutePath().normalize();
        }
        URI uri = URI.create(location.replace(" ", "%20"));
        if (!"file".equals(uri.getScheme())) {
            throw new IllegalArgumentException(
                    "cannot keep what a link has taken in %s: checkpointLocation must be a folder of"
                            .formatted(location)
                            + " this machine");
        }
        return Path.of(uri.getPath()).toAbsolutePath().normalize();
    }
}
