package io.speck.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class EdgeSiteTest {
    private static final String MANY_RESTARTS = "-Drestart-strategy.fixed-delay.attempts=1000";

    @TempDir Path home;

    @Test
    @Tag("long")
    void everySlotWorks() throws Exception {
        try (RunningSite site = RunningSite.launch(home).awaitReady()) {
            assertEquals(3, site.get("/overview").get("slots-total").asInt());
            String jar = site.uploadSampleJobs();

            Set<String> jobs = new HashSet<>();
            for (int i = 0; i < 3; i++) {
                jobs.add(site.run(jar, SampleJobs.Endless.class));
            }
            jobs.forEach(site::awaitRunning);
            assertEquals(0, site.get("/overview").get("slots-available").asInt());
            assertTrue(site.process.isAlive());
        }
    }

    @Test
    void endsCleanlyOnSigtermAndKeepsCheckpoints() throws Exception {
        try (RunningSite site = RunningSite.launch(home).awaitReady()) {
            String job = site.run(site.uploadSampleJobs(), SampleJobs.Endless.class);
            site.awaitRunning(job);
            RunningSite.await("checkpoint", () -> checkpoints(job) > 0);

            site.process.destroy();
            assertEquals(0, site.awaitExit(), site.err());
            assertTrue(checkpoints(job) > 0);
            assertFalse(Files.exists(home.resolve("work/scratch")));
        }
    }

    @Test
    @Tag("long")
    void aJobThatFailsToCloseTakesNoSlotsFromTheOthers() throws Exception {
        String restarts = "-Drestart-strategy.type=fixed-delay";
        try (RunningSite site = RunningSite.launch(home, restarts, MANY_RESTARTS).awaitReady()) {
            String jar = site.uploadSampleJobs();
            String bystander = site.run(jar, SampleJobs.Endless.class);
            for (int round = 0; round < 2; round++) {
                String job = site.run(jar, SampleJobs.FailsToClose.class);
                site.awaitRunning(job);
                site.awaitRunning(bystander);
                site.cancel(job);
                RunningSite.await("no slots", () -> slots(site) == 0);
                RunningSite.await("new slots", () -> slots(site) == 3);
                site.awaitRunning(bystander);
            }
            assertEquals(3, slots(site));
            assertTrue(site.process.isAlive());
        }
    }

    @Test
    @Tag("long")
    void aTaskThatDoesNotEndEndsTheEngine() throws Exception {
        try (RunningSite site =
                RunningSite.launch(
                                home,
                                "-Dtask.cancellation.interval=200",
                                "-Dtask.cancellation.timeout=1000")
                        .awaitReady()) {
            String job = site.run(site.uploadSampleJobs(), SampleJobs.NeverEnds.class);
            site.awaitRunning(job);
            site.requestCancel(job);

            assertEquals(2, site.awaitExit(), site.err());
            assertEquals(
                    "speck-runtime: cannot go on: no slots are left; see log", lastLine(site));
        }
    }

    private static int slots(RunningSite site) {
        try {
            return site.get("/overview").get("slots-total").asInt();
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    private long checkpoints(String job) {
        try (var files = Files.walk(home.resolve("ckpt").resolve(job))) {
            return files.filter(path -> path.endsWith("_metadata")).count();
        } catch (java.io.IOException e) {
            return 0;
        }
    }

    @Test
    void tellsThatThePortIsInUse() throws Exception {
        try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"));
                RunningSite site =
                        RunningSite.launch(home, "-Drest.port=" + taken.getLocalPort())) {
            assertEquals(1, site.awaitExit());
            assertEquals(
                    "speck-runtime: cannot listen on 127.0.0.1:"
                            + taken.getLocalPort()
                            + ": the port is in use, or the address is not of this machine;"
                            + " set rest.bind-address and rest.port",
                    lastLine(site));
        }
    }

    private static String lastLine(RunningSite site) {
        return site.err().lines()
                .filter(line -> line.startsWith("speck-runtime:"))
                .reduce((a, b) -> b)
                .orElse("");
    }
}
