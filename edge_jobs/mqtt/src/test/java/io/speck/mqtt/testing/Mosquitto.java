package io.speck.mqtt.testing;

import io.speck.link.testing.Wait;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A real broker with a folder of its own, on a free port that it keeps over restarts. */
public final class Mosquitto implements AutoCloseable {
    private final Path folder;
    private final int port;
    private int autosaveSeconds = 1;
    private List<String> more = List.of();
    private Process process;

    private Mosquitto(Path folder, int port) {
        this.folder = folder;
        this.port = port;
    }

    /** With further lines of configuration. */
    public Mosquitto with(String... lines) {
        more = List.of(lines);
        return this;
    }

    /** Not yet running. */
    public static Mosquitto in(Path parent) throws IOException {
        Path folder = Files.createTempDirectory(parent, "broker");
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return new Mosquitto(folder, free.getLocalPort());
        }
    }

    public static Mosquitto started(Path parent) throws Exception {
        return in(parent).start();
    }

    public Mosquitto start() throws Exception {
        Path config = folder.resolve("mosquitto.conf");
        Files.write(
                config,
                List.of(
                        "listener " + port + " 127.0.0.1",
                        "allow_anonymous true",
                        "user " + System.getProperty("user.name"),
                        "persistence true",
                        "persistence_location " + folder + "/",
                        "autosave_interval " + autosaveSeconds,
                        "max_inflight_messages 1000",
                        "max_queued_messages 1000000",
                        "message_size_limit 1048576",
                        "set_tcp_nodelay true"));
        Files.write(config, more, StandardOpenOption.APPEND);
        process =
                new ProcessBuilder(program(), "-c", config.toString())
                        .redirectErrorStream(true)
                        .redirectOutput(folder.resolve("log").toFile())
                        .start();
        Wait.until("mosquitto listens", this::listens);
        return this;
    }

    /** From the next start on. */
    public Mosquitto autosaving(int seconds) {
        autosaveSeconds = seconds;
        return this;
    }

    /** SIGSTOP: connections stay, nothing is answered. */
    public void freeze() throws Exception {
        signal("STOP");
    }

    public void thaw() throws Exception {
        signal("CONT");
    }

    private void signal(String name) throws Exception {
        new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
    }

    public int port() {
        return port;
    }

    public String address() {
        return "tcp://127.0.0.1:" + port;
    }

    /** SIGTERM: it writes its sessions down. */
    public void stop() throws InterruptedException {
        process.destroy();
        if (!process.waitFor(10, TimeUnit.SECONDS)) {
            throw new IllegalStateException("mosquitto does not stop");
        }
    }

    /** SIGKILL. */
    public void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    public void forgetEverything() throws IOException {
        Files.deleteIfExists(folder.resolve("mosquitto.db"));
    }

    @Override
    public void close() throws InterruptedException {
        if (process != null) {
            kill();
        }
    }

    private boolean listens() {
        if (!process.isAlive()) {
            throw new IllegalStateException("mosquitto ended: see " + folder.resolve("log"));
        }
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("127.0.0.1", port), 200);
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    private static String program() {
        String path = System.getenv("PATH") + ":/usr/sbin:/usr/local/sbin";
        return Stream.of(path.split(":"))
                .map(folder -> Path.of(folder, "mosquitto"))
                .filter(Files::isExecutable)
                .findFirst()
                .orElseThrow(() -> new IllegalStateException("these tests need mosquitto: install it"))
                .toString();
    }
}
