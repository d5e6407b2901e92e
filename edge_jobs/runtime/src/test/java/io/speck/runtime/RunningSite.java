package io.speck.runtime;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;

/** A real {@link EdgeSite} process and the few REST calls that the tests make. */
final class RunningSite implements AutoCloseable {
    private static final long LIMIT_S = 180; // an engine starts slowly on a busy machine

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String[] OPENED = {
        "java.lang", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util",
        "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"
    };

    final Process process;
    private final Path home;
    private final HttpClient http = HttpClient.newHttpClient();
    private URI rest;

    private RunningSite(Process process, Path home) {
        this.process = process;
        this.home = home;
    }

    /** Starts a process that listens on a free port of 127.0.0.1 unless overridden. */
    static RunningSite launch(Path home, String... overrides) throws IOException {
        Path conf = Files.createDirectories(home.resolve("conf"));
        Path config = conf.resolve("config.yaml");
        if (!Files.exists(config)) {
            Files.writeString(
                    config,
                    "rest:\n  address: 127.0.0.1\n  port: 0\n"
                            + "taskmanager.numberOfTaskSlots: 3\n"
                            + "process.working-dir: " + home.resolve("work") + "\n"
                            + "restart-strategy.type: none\n"
                            + "execution.checkpointing.interval: 200ms\n"
                            + "execution.checkpointing.externalized-checkpoint-retention:"
                            + " RETAIN_ON_CANCELLATION\n"
                            + "execution.checkpointing.dir: " + home.resolve("ckpt").toUri() + "\n"
                            + "rest.cache.execution-graph.timeout: 100\n");
        }
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(
                List.of(
                        "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx192m",
                        "-XX:MaxMetaspaceSize=192m", "-Dfile.encoding=UTF-8"));
        for (String name : OPENED) {
            command.add("--add-opens=java.base/" + name + "=ALL-UNNAMED");
        }
        command.addAll(List.of("-cp", classPath(), "io.speck.runtime.EdgeSite"));
        command.addAll(List.of("--config-dir", conf.toString()));
        command.addAll(List.of(overrides));
        Process process =
                new ProcessBuilder(command)
                        .redirectOutput(home.resolve("out").toFile())
                        .redirectError(home.resolve("err").toFile())
                        .start();
        return new RunningSite(process, home);
    }

    private static String classPath() {
        String all =
                System.getProperty(
                        "surefire.test.class.path", System.getProperty("java.class.path"));
        List<String> kept = new ArrayList<>();
        for (String entry : all.split(java.io.File.pathSeparator)) {
            // the jobs must come from their uploaded jar, with its own class loader
            if (!entry.contains("test-classes")) {
                kept.add(entry);
            }
        }
        return String.join(java.io.File.pathSeparator, kept);
    }

    RunningSite awaitReady() throws Exception {
        try {
            await("ready", () -> !process.isAlive() || out().contains("speck-runtime ready "));
        } catch (AssertionError e) {
            close(); // nobody else would
            throw e;
        }
        String line =
                out().lines()
                        .filter(l -> l.startsWith("speck-runtime ready "))
                        .findFirst()
                        .orElseThrow(() -> new AssertionError("not started: " + err()));
        rest = URI.create(line.substring("speck-runtime ready ".length()));
        return this;
    }

    URI rest() {
        return rest;
    }

    String out() {
        return read("out");
    }

    /** What the process wrote to stderr, without the JVM's own warnings. */
    String err() {
        return read("err").lines()
                .filter(line -> !line.startsWith("WARNING:"))
                .reduce("", (a, b) -> a + b + "\n");
    }

    private String read(String name) {
        try {
            return Files.readString(home.resolve(name));
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    int awaitExit() throws InterruptedException {
        if (!process.waitFor(LIMIT_S, TimeUnit.SECONDS)) {
            throw new AssertionError("still running: " + err());
        }
        return process.exitValue();
    }

    JsonNode get(String path) throws Exception {
        return call(HttpRequest.newBuilder(rest.resolve(path)).GET(), true);
    }

    String uploadSampleJobs() throws Exception {
        Path jar = home.resolve("sample-jobs.jar");
        writeJar(jar);
        String border = "border-of-parts";
        byte[] head =
                ("--" + border + "\r\nContent-Disposition: form-data; name=\"jarfile\";"
                                + " filename=\"sample-jobs.jar\"\r\n"
                                + "Content-Type: application/java-archive\r\n\r\n")
                        .getBytes(StandardCharsets.UTF_8);
        byte[] tail = ("\r\n--" + border + "--\r\n").getBytes(StandardCharsets.UTF_8);
        JsonNode answer =
                call(
                        HttpRequest.newBuilder(rest.resolve("/jars/upload"))
                                .header("Content-Type", "multipart/form-data; boundary=" + border)
                                .POST(
                                        HttpRequest.BodyPublishers.ofByteArrays(
                                                List.of(head, Files.readAllBytes(jar), tail))),
                        true);
        String name = answer.get("filename").asText();
        return name.substring(name.lastIndexOf('/') + 1);
    }

    private static void writeJar(Path jar) throws Exception {
        Path classes =
                Path.of(
                        SampleJobs.class
                                .getProtectionDomain()
                                .getCodeSource()
                                .getLocation()
                                .toURI());
        try (OutputStream file = Files.newOutputStream(jar);
                JarOutputStream out = new JarOutputStream(file);
                var files = Files.walk(classes)) {
            for (Path path : (Iterable<Path>) files::iterator) {
                String name = classes.relativize(path).toString();
                if (name.startsWith("io/speck/runtime/SampleJobs") && name.endsWith(".class")) {
                    out.putNextEntry(new JarEntry(name));
                    try (InputStream in = Files.newInputStream(path)) {
                        in.transferTo(out);
                    }
                    out.closeEntry();
                }
            }
        }
    }

    /** Starts a job and returns REST's whole answer, an error's too. */
    JsonNode tryRun(String jar, Class<?> entry) throws Exception {
        String body = JSON.writeValueAsString(java.util.Map.of("entryClass", entry.getName()));
        return call(
                HttpRequest.newBuilder(rest.resolve("/jars/" + jar + "/run"))
                        .header("Content-Type", "application/json")
                        .POST(HttpRequest.BodyPublishers.ofString(body)),
                false);
    }

    String run(String jar, Class<?> entry) throws Exception {
        JsonNode answer = tryRun(jar, entry);
        if (!answer.has("jobid")) {
            throw new AssertionError(answer.toString());
        }
        return answer.get("jobid").asText();
    }

    void cancel(String job) throws Exception {
        requestCancel(job);
        awaitState(job, "CANCELED");
    }

    void requestCancel(String job) throws Exception {
        call(
                HttpRequest.newBuilder(rest.resolve("/jobs/" + job + "?mode=cancel"))
                        .method("PATCH", HttpRequest.BodyPublishers.noBody()),
                true);
    }

    void awaitState(String job, String state) {
        await(job + " " + state, () -> state(job).equals(state));
    }

    /** Waits until every task of a job runs. */
    void awaitRunning(String job) {
        await(
                job + " running",
                () -> {
                    JsonNode answer = uncheckedGet("/jobs/" + job);
                    int running = 0;
                    for (JsonNode vertex : answer.get("vertices")) {
                        running += vertex.get("status").asText().equals("RUNNING") ? 1 : 0;
                    }
                    return running > 0 && running == answer.get("vertices").size();
                });
    }

    String state(String job) {
        return uncheckedGet("/jobs/" + job).get("state").asText();
    }

    private JsonNode uncheckedGet(String path) {
        try {
            return get(path);
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    private JsonNode call(HttpRequest.Builder request, boolean mustWork) throws Exception {
        HttpResponse<String> answer =
                http.send(
                        request.timeout(java.time.Duration.ofSeconds(30)).build(),
                        HttpResponse.BodyHandlers.ofString());
        if (mustWork && answer.statusCode() >= 300) {
            throw new AssertionError(answer.statusCode() + " " + answer.body());
        }
        return answer.body().isEmpty() ? JSON.createObjectNode() : JSON.readTree(answer.body());
    }

    static void await(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + LIMIT_S + " s: " + what);
            }
            java.util.concurrent.locks.LockSupport.parkNanos(20_000_000);
        }
    }

    @Override
    public void close() throws Exception {
        process.destroyForcibly();
        process.waitFor();
    }
}
