package io.speck.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Jobs come and go for months at an edge: nothing may pile up in its JVM. */
@Tag("long")
class ManyJobsTest {
    private static final int WARM_UP = 50;
    private static final int CYCLES = 200;

    @TempDir Path home;

    @Test
    void twoHundredCyclesLeaveMetaspaceAndThreadsFlat() throws Exception {
        try (RunningSite site = RunningSite.launch(home).awaitReady()) {
            String jar = site.uploadSampleJobs();
            String job = site.run(jar, SampleJobs.Endless.class);
            site.awaitRunning(job);
            assertTrue(Use.of(site).loaders > 0, "the class loaders of jobs are not seen");
            site.cancel(job);
            cycles(site, jar, WARM_UP);
            Use before = Use.of(site);
            cycles(site, jar, CYCLES);
            Use after = Use.of(site);
            System.out.println("after warm-up " + before + ", 200 cycles later " + after);

            // one leaked class loader a cycle would be some 200 loaders and over 10 MB
            assertTrue(after.loaders - before.loaders < 10, before + " -> " + after);
            assertTrue(after.metaspaceKb - before.metaspaceKb < 2048, before + " -> " + after);
            assertTrue(after.threads - before.threads < 10, before + " -> " + after);
            assertEquals(3, site.get("/overview").get("slots-available").asInt());
        }
    }

    private static void cycles(RunningSite site, String jar, int number) throws Exception {
        for (int i = 0; i < number; i++) {
            String job = site.run(jar, SampleJobs.Endless.class);
            site.awaitRunning(job);
            site.cancel(job);
        }
    }

    /** What a site's JVM holds after a full collection. */
    private record Use(int metaspaceKb, int threads, int loaders) {
        static Use of(RunningSite site) throws Exception {
            for (int i = 0; i < 3; i++) {
                jcmd(site, "GC.run");
            }
            String[] keys;
            String[] values;
            String[] table = tool("jstat", "-gc", Long.toString(site.process.pid())).split("\n");
            keys = table[0].trim().split("\\s+");
            values = table[1].trim().split("\\s+");
            int metaspace = -1;
            for (int i = 0; i < keys.length; i++) {
                if (keys[i].equals("MU")) {
                    metaspace = (int) Double.parseDouble(values[i]);
                }
            }
            int loaders =
                    (int)
                            jcmd(site, "VM.classloaders")
                                    .lines()
                                    .filter(line -> line.contains("ChildFirstClassLoader"))
                                    .count();
            return new Use(metaspace, threads(site), loaders);
        }

        private static int threads(RunningSite site) throws IOException {
            for (String line :
                    Files.readAllLines(Path.of("/proc/" + site.process.pid() + "/status"))) {
                if (line.startsWith("Threads:")) {
                    return Integer.parseInt(line.substring(8).trim());
                }
            }
            throw new AssertionError("no thread count");
        }

        private static String jcmd(RunningSite site, String command) throws Exception {
            return tool("jcmd", Long.toString(site.process.pid()), command);
        }

        private static String tool(String... command) throws Exception {
            command[0] = Path.of(System.getProperty("java.home"), "bin", command[0]).toString();
            Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
            String output =
                    new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertEquals(0, process.waitFor(), output);
            return output;
        }
    }
}
