package io.speck.kafka.testing;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.speck.link.testing.Wait;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;

/** A real Kafka, broker and controller in one small JVM, at a port of its own. */
public final class KafkaServer implements AutoCloseable {
    private static final List<String> JVM =
            List.of("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1");

    private final Path folder;
    private final int port;
    private final Guard guard; // null: everybody may come
    private final Path settings;
    private Process process;

    private KafkaServer(Path folder, boolean guarded) throws Exception {
        this.folder = Files.createDirectories(folder);
        this.port = pickPort();
        this.guard = guarded ? Guard.in(folder, pickPort()) : null;
        this.settings = writeSettings();
        run("kafka.tools.StorageTool", "format", "--standalone", "-t", Uuid.randomUuid().toString(),
                        "-c", settings.toString())
                .waitFor();
    }

    /** Starts one with its files in a folder. */
    public static KafkaServer started(Path folder) throws Exception {
        KafkaServer server = new KafkaServer(folder, false);
        server.start();
        return server;
    }

    /** The same with a second listener, for those with a password and over TLS only. */
    public static KafkaServer guarded(Path folder) throws Exception {
        KafkaServer server = new KafkaServer(folder, true);
        server.start();
        try (Admin admin = server.admin()) {
            server.guard.makeUser(admin);
        }
        return server;
    }

    /** What stands before the second listener. */
    public Guard guard() {
        return guard;
    }

    public String address() {
        return "kafka://127.0.0.1:" + port;
    }

    public Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", "127.0.0.1:" + port));
    }

    public int port() {
        return port;
    }

    public void start() throws Exception {
        process = run("kafka.Kafka", settings.toString());
        try {
            Wait.until("Kafka answers", this::answers, () -> tail());
        } catch (Throwable e) {
            kill();
            throw e;
        }
    }

    /** As power does: nothing is said to anybody. */
    public void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    /**
     * Leaves only the first batches of a topic's log, while it does not run: what follows was not on
     * the disk when the machine lost its power.
     */
    public void cutLog(String topic, int batches) throws IOException {
        Path log = folder.resolve("data").resolve(topic + "-0").resolve("0".repeat(20) + ".log");
        try (RandomAccessFile file = new RandomAccessFile(log.toFile(), "rw")) {
            long end = 0;
            for (int i = 0; i < batches; i++) {
                file.seek(end + Long.BYTES); // behind the offset of its first record
                end += Long.BYTES + Integer.BYTES + file.readInt();
            }
            file.setLength(end);
        }
    }

    /** Lets it stand still, with its connections open. */
    public void freeze() throws Exception {
        signal("STOP");
    }

    public void thaw() throws Exception {
        signal("CONT");
    }

    @Override
    public void close() throws Exception {
        if (process.isAlive()) {
            signal("CONT");
            kill();
        }
    }

    private void signal(String name) throws Exception {
        new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
    }

    private boolean answers() {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("127.0.0.1", port), 200);
        } catch (IOException e) {
            return false;
        }
        try (Admin admin = admin()) {
            return !admin.describeCluster().nodes().get(2, TimeUnit.SECONDS).isEmpty();
        } catch (Exception e) {
            return false;
        }
    }

    private String tail() {
        try {
            List<String> lines = Files.readAllLines(folder.resolve("kafka.log"));
            return String.join("\n", lines.subList(Math.max(0, lines.size() - 20), lines.size()));
        } catch (IOException e) {
            return e.toString();
        }
    }

    private Process run(String main, String... arguments) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(JVM);
        command.addAll(List.of("-cp", classPath(), main));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(
                        ProcessBuilder.Redirect.appendTo(folder.resolve("kafka.log").toFile()))
                .start();
    }

    /** Surefire may name the class path in a jar only. */
    private static String classPath() {
        return System.getProperty(
                "surefire.test.class.path",
                System.getProperty("java.class.path").replace(';', File.pathSeparatorChar));
    }

    private Path writeSettings() throws IOException {
        int controller = pickPort();
        String guarded = guard == null ? "" : "," + guard.listener();
        String text =
                String.join(
                        "\n",
                        "process.roles=broker,controller",
                        "node.id=1",
                        "listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d%s"
                                .formatted(port, controller, guarded),
                        "advertised.listeners=PLAINTEXT://127.0.0.1:%d%s".formatted(port, guarded),
                        guard == null ? "" : guard.settings(),
                        "controller.listener.names=CONTROLLER",
                        "controller.quorum.bootstrap.servers=127.0.0.1:" + controller,
                        "log.dirs=" + folder.resolve("data"),
                        "auto.create.topics.enable=false",
                        "offsets.topic.replication.factor=1",
                        "offsets.topic.num.partitions=2",
                        "transaction.state.log.replication.factor=1",
                        "transaction.state.log.min.isr=1",
                        "transaction.state.log.num.partitions=2",
                        "log.cleaner.dedupe.buffer.size=4194304",
                        "group.initial.rebalance.delay.ms=0",
                        "num.network.threads=2",
                        "num.io.threads=4",
                        "");
        return Files.write(folder.resolve("server.properties"), text.getBytes(UTF_8));
    }

    private static int pickPort() throws IOException {
        try (ServerSocket free = new ServerSocket(0)) {
            return free.getLocalPort();
        }
    }
}
