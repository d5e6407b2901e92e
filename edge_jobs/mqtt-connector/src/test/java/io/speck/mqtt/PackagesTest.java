package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** What each package may use, as its package-info says. */
class PackagesTest {
    private static final Path SOURCES = Path.of("src", "main", "java", "io", "speck", "mqtt");
    private static final Pattern OURS =
            Pattern.compile("\\bio\\.speck\\.mqtt\\.(?:([a-z]+)\\.)?[A-Z]");

    private static final Map<String, Set<String>> ALLOWED =
            Map.of(
                    "protocol", Set.of(),
                    "metrics", Set.of(),
                    "connection", Set.of("protocol"),
                    "source", Set.of("protocol", "connection", "metrics"),
                    "sink", Set.of("protocol", "connection", "metrics"),
                    "bench", Set.of("protocol", "connection"),
                    "", Set.of("protocol", "connection", "source", "sink"));

    @Test
    void packagesUseEachOtherInOneDirection() throws Exception {
        for (String name : ALLOWED.keySet()) {
            Set<String> used = new TreeSet<>();
            for (Path file : filesOf(name)) {
                Matcher reference = OURS.matcher(withoutComments(file));
                while (reference.find()) {
                    used.add(reference.group(1) == null ? "" : reference.group(1));
                }
            }
            used.remove(name);
            used.removeAll(ALLOWED.get(name));
            assertEquals(Set.of(), used, "used by package \"" + name + "\"");
        }
    }

    @Test
    void eachPackageSaysWhatItIs() throws Exception {
        try (Stream<Path> folders = Files.walk(SOURCES).filter(Files::isDirectory)) {
            for (Path folder : folders.toList()) {
                String name = SOURCES.relativize(folder).toString();
                assertTrue(ALLOWED.containsKey(name), "package \"" + name + "\" has no rule");
                assertTrue(Files.exists(folder.resolve("package-info.java")), name);
            }
        }
    }

    @Test
    void theClientsInternalsAreBehindOneClass() throws Exception {
        for (String name : ALLOWED.keySet()) {
            for (Path file : filesOf(name)) {
                boolean internal = Files.readString(file).contains("com.hivemq.client.internal");
                assertEquals(file.endsWith("HiveMqInternals.java"), internal, file.toString());
            }
        }
    }

    private static List<Path> filesOf(String name) throws Exception {
        try (Stream<Path> files = Files.list(SOURCES.resolve(name))) {
            return files.filter(file -> file.toString().endsWith(".java")).toList();
        }
    }

    private static String withoutComments(Path file) throws Exception {
        return Files.readString(file).replaceAll("(?s)/\\*.*?\\*/", "");
    }
}
