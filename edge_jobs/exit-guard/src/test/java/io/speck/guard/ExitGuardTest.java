package io.speck.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.jar.Attributes;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.objectweb.asm.ClassReader;

class ExitGuardTest {
    private static final int LIMIT_S = 120;

    @TempDir static Path folder;
    private static Path agent;

    private record End(int status, String output) {}

    /** Before `package` there is no agent's jar: this one names the folders of classes. */
    @BeforeAll
    static void writeAgent() throws Exception {
        agent = folder.resolve("agent.jar");
        Manifest manifest = new Manifest();
        Attributes values = manifest.getMainAttributes();
        values.put(Attributes.Name.MANIFEST_VERSION, "1.0");
        values.putValue("Premain-Class", GuardAgent.class.getName());
        values.putValue("Can-Retransform-Classes", "true");
        values.putValue(
                "Boot-Class-Path",
                location(GuardAgent.class).getRawPath()
                        + " "
                        + location(ClassReader.class).getRawPath());
        try (OutputStream file = Files.newOutputStream(agent)) {
            new JarOutputStream(file, manifest).close();
        }
    }

    private static URI location(Class<?> type) throws Exception {
        return type.getProtectionDomain().getCodeSource().getLocation().toURI();
    }

    private static Process start(String... args) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("-XX:TieredStopAtLevel=1", "-Xmx64m", "-javaagent:" + agent));
        String path =
                System.getProperty(
                        "surefire.test.class.path", System.getProperty("java.class.path"));
        command.addAll(List.of("-cp", path, SampleEngine.class.getName()));
        command.addAll(List.of(args));
        return new ProcessBuilder(command).redirectErrorStream(true).start();
    }

    private static End run(String... args) throws Exception {
        Process process = start(args);
        try (InputStream output = process.getInputStream()) {
            String text = new String(output.readAllBytes());
            assertTrue(process.waitFor(LIMIT_S, TimeUnit.SECONDS), text);
            return new End(process.exitValue(), text);
        } finally {
            process.destroyForcibly();
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "exit", "halt", "runtimeExit", "lambda", "staticInitializer", "reflection",
                "reflectionInThread", "thread", "threadWithoutContext", "methodReference",
                "methodHandle", "loaderOfItsOwn"
            })
    void aJobDoesNotEndTheEngine(String way) throws Exception {
        End end = run("job", way);
        assertEquals(0, end.status, end.output);
        assertTrue(end.output.contains("alive"), end.output);
        if (!way.equals("methodReference")) { // its future swallows the reason
            assertTrue(end.output.contains("cannot end the engine from a job"), end.output);
        }
    }

    @Test
    @Tag("long")
    void aJobsShutdownHookDoesNotCutShortTheEnginesEnd() throws Exception {
        End end = run("job", "shutdownHook");
        assertEquals(0, end.status, end.output);
        assertTrue(end.output.contains("Runtime.halt(7) was refused"), end.output);
        assertTrue(end.output.contains("System.exit(7) was refused"), end.output);
    }

    @ParameterizedTest
    @Tag("long")
    @CsvSource({"exit", "halt", "thread"})
    void theEngineEndsItself(String way) throws Exception {
        End end = run(way);
        assertEquals(5, end.status, end.output);
    }

    @Test
    @Tag("long")
    void aSignalEndsTheEngine() throws Exception {
        Process process = start("wait");
        try (InputStream output = process.getInputStream()) {
            StringBuilder text = new StringBuilder();
            while (text.indexOf("alive") < 0) {
                int next = output.read();
                assertTrue(next >= 0, text.toString());
                text.append((char) next);
            }
            process.destroy();
            assertTrue(process.waitFor(LIMIT_S, TimeUnit.SECONDS), text.toString());
            assertEquals(143, process.exitValue(), text.toString());
        } finally {
            process.destroyForcibly();
        }
    }

    @Test
    void aRuntimeWithoutTheMethodsIsRefused() throws Exception {
        byte[] other;
        try (InputStream file = ExitGuardTest.class.getResourceAsStream("SampleJob.class")) {
            other = file.readAllBytes();
        }
        String message =
                assertThrows(IllegalStateException.class, () -> GuardedRuntime.guard(other))
                        .getMessage();
        assertEquals("java.lang.Runtime lacks [exit, halt]", message);
    }
}
