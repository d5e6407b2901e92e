package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** What each package of the connector's modules may use, as its package-info says. */
class PackagesTest {
    private static final Path EDGE_JOBS = Path.of("..");
    private static final Path SOURCES = Path.of("src", "main", "java");
    private static final Set<String> MODULES =
            Set.of("link-core", "mqtt", "kafka", "flink-connector", "spark-connector");
    private static final Pattern OURS = Pattern.compile("\\bio\\.speck\\.([a-z.]+)\\.[A-Z]");
    private static final Pattern ENGINES =
            Pattern.compile("\\borg\\.apache\\.(flink|spark)\\.");

    private static final String CORE = "link.";
    private static final Set<String> TRANSPORTS = Set.of("mqtt.connection", "kafka");
    private static final Set<String> ENDS =
            Set.of("link.protocol", "link.transport", "link.metrics");
    private static final Set<String> SHELL =
            Set.of("link.protocol", "link.transport", "link.metrics", "link.sink", "link.source");

    private static final Map<String, Set<String>> ALLOWED =
            new TreeMap<>(
                    Map.ofEntries(
                            Map.entry("link.protocol", Set.of()),
                            Map.entry("link.metrics", Set.of()),
                            Map.entry("link.transport", Set.of("link.protocol")),
                            Map.entry("link.source", ENDS),
                            Map.entry("link.sink", ENDS),
                            Map.entry("link", SHELL),
                            Map.entry(
                                    "mqtt.connection", Set.of("link.protocol", "link.transport")),
                            Map.entry(
                                    "mqtt.bench",
                                    Set.of("link.protocol", "link.transport", "mqtt.connection")),
                            Map.entry("kafka", Set.of("link.protocol", "link.transport")),
                            Map.entry("kafka.bench", Set.of()),
                            Map.entry("flink", Set.of()),
                            Map.entry("flink.metrics", Set.of("link.metrics")),
                            Map.entry("flink.source", with(SHELL, "flink.metrics")),
                            Map.entry("flink.sink", with(SHELL, "flink.metrics")),
                            Map.entry("spark.files", Set.of()),
                            Map.entry("spark.metrics", Set.of("link.metrics")),
                            Map.entry(
                                    "spark.source",
                                    with(SHELL, "link", "spark.files", "spark.metrics")),
                            Map.entry(
                                    "spark.sink",
                                    with(SHELL, "link", "spark.files", "spark.metrics")),
                            Map.entry("spark.windows", Set.of("link", "jobs")),
                            Map.entry(
                                    "spark",
                                    Set.of(
                                            "link",
                                            "spark.files",
                                            "spark.metrics",
                                            "spark.sink",
                                            "spark.source")),
                            Map.entry(
                                    "mqtt",
                                    Set.of("link", "link.sink", "flink.sink", "flink.source"))));

    private static Set<String> with(Set<String> some, String... more) {
        Set<String> all = new TreeSet<>(some);
        all.addAll(Set.of(more));
        return all;
    }

    @Test
    void packagesUseEachOtherInOneDirection() throws Exception {
        for (Map.Entry<String, List<Path>> each : packages().entrySet()) {
            String name = each.getKey();
            Set<String> used = new TreeSet<>();
            for (Path file : each.getValue()) {
                Matcher reference = OURS.matcher(withoutComments(file));
                while (reference.find()) {
                    used.add(reference.group(1));
                }
            }
            used.remove(name);
            used.removeAll(ALLOWED.getOrDefault(name, Set.of()));
            assertEquals(Set.of(), used, "used by package \"" + name + "\"");
        }
    }

    @Test
    void eachPackageSaysWhatItIs() throws Exception {
        for (Map.Entry<String, List<Path>> each : packages().entrySet()) {
            String name = each.getKey();
            assertTrue(ALLOWED.containsKey(name), "package \"" + name + "\" has no rule");
            Path first = each.getValue().get(0);
            assertTrue(Files.exists(first.resolveSibling("package-info.java")), name);
        }
    }

    @Test
    void noEngineIsKnownToTheCoreAndTheTransports() throws Exception {
        for (Map.Entry<String, List<Path>> each : packages().entrySet()) {
            boolean engineless =
                    (each.getKey() + ".").startsWith(CORE)
                            || TRANSPORTS.contains(each.getKey());
            for (Path file : each.getValue()) {
                boolean usesEngine = ENGINES.matcher(withoutComments(file)).find();
                assertTrue(!engineless || !usesEngine, file.toString());
            }
        }
    }

    @Test
    void theClientsInternalsAreBehindOneClass() throws Exception {
        for (List<Path> files : packages().values()) {
            for (Path file : files) {
                boolean internal = Files.readString(file).contains("com.hivemq.client.internal");
                assertEquals(file.endsWith("HiveMqInternals.java"), internal, file.toString());
            }
        }
    }

    /** Returns the sources of each package below {@code io.speck}. */
    private static Map<String, List<Path>> packages() throws Exception {
        Map<String, List<Path>> packages = new TreeMap<>();
        for (String module : MODULES) {
            Path root = EDGE_JOBS.resolve(module).resolve(SOURCES).resolve(Path.of("io", "speck"));
            try (Stream<Path> folders = Files.walk(root).filter(Files::isDirectory)) {
                for (Path folder : folders.toList()) {
                    try (Stream<Path> files = Files.list(folder)) {
                        List<Path> sources =
                                files.filter(file -> file.toString().endsWith(".java")).toList();
                        if (!sources.isEmpty()) {
                            String name = root.relativize(folder).toString().replace('/', '.');
                            packages.put(name, sources);
                        }
                    }
                }
            }
        }
        return packages;
    }

    private static String withoutComments(Path file) throws Exception {
        return Files.readString(file).replaceAll("(?s)/\\*.*?\\*/", "");
    }
}
