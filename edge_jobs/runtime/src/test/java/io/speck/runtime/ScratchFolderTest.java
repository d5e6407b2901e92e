package io.speck.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.ClusterOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.CoreOptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ScratchFolderTest {
    @TempDir Path home;

    private Configuration configuration() {
        Configuration configuration = new Configuration();
        configuration.set(ClusterOptions.PROCESS_WORKING_DIR_BASE, home.toString());
        return configuration;
    }

    @Test
    void removesWhatAKilledRuntimeLeft() throws IOException {
        Path left = Files.createDirectories(home.resolve("scratch/minicluster_1/blobStorage"));
        Configuration configuration = configuration();
        try (ScratchFolder scratch = ScratchFolder.prepare(configuration)) {
            assertFalse(Files.exists(left));
            assertEquals(scratch.toString(), configuration.get(CoreOptions.TMP_DIRS));
            assertTrue(Files.isDirectory(Path.of(scratch.toString())));
        }
        assertFalse(Files.exists(home.resolve("scratch")));
    }

    @Test
    void refusesAFolderThatAnotherRuntimeUses() throws IOException {
        try (ScratchFolder first = ScratchFolder.prepare(configuration())) {
            IllegalArgumentException refusal =
                    assertThrows(
                            IllegalArgumentException.class,
                            () -> ScratchFolder.prepare(configuration()));
            assertEquals(
                    "cannot use process.working-dir "
                            + home
                            + ": another speck-runtime uses it; give each site its own",
                    refusal.getMessage());
            assertTrue(Files.exists(Path.of(first.toString())));
        }
    }

    @Test
    void usesATemporaryFolderWhenNothingIsSaid() throws IOException {
        Configuration configuration = new Configuration();
        String folder;
        try (ScratchFolder scratch = ScratchFolder.prepare(configuration)) {
            folder = scratch.toString();
            assertTrue(Files.isDirectory(Path.of(folder)));
        }
        assertFalse(Files.exists(Path.of(folder)));
    }
}
