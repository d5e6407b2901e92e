package io.speck.mqtt.testing;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Predicate;

/** Stands before a broker and cuts connections: now, or when a client says a certain thing. */
public final class CuttingProxy implements AutoCloseable {
    private static final int SUBSCRIBE = 0x82;
    private static final int PINGREQ = 0xc0;

    private final Mosquitto behind;
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final Collection<Socket> sockets = new ConcurrentLinkedQueue<>();
    private final AtomicInteger pings = new AtomicInteger();
    private final AtomicReference<Predicate<byte[]>> last = new AtomicReference<>();

    private volatile boolean forever;

    public CuttingProxy(Mosquitto behind) throws IOException {
        this.behind = behind;
        daemon(this::accept);
    }

    public String address() {
        return "tcp://127.0.0.1:" + server.getLocalPort();
    }

    /** How many pings went to the broker. */
    public int pings() {
        return pings.get();
    }

    /** All connections of now. */
    public void cut() throws IOException {
        for (Socket socket : sockets) {
            socket.close();
        }
        sockets.clear();
    }

    /** Once, before something with this text gets through. */
    public void cutBefore(String text) {
        last.set(bytes -> new String(bytes, StandardCharsets.ISO_8859_1).contains(text));
    }

    /** Each time, before something with this text gets through. */
    public void cutWhenever(String text) {
        forever = true;
        cutBefore(text);
    }

    /** From now on everything gets through. */
    public void cutNothing() {
        forever = false;
        last.set(null);
    }

    /** Once, before a SUBSCRIBE gets through. */
    public void cutBeforeSubscribe() {
        last.set(bytes -> (bytes[0] & 0xff) == SUBSCRIBE);
    }

    /** Whether what was to be cut is cut. */
    public boolean hasCut() {
        return last.get() == null;
    }

    @Override
    public void close() throws IOException {
        server.close();
        cut();
    }

    private void accept() throws IOException {
        while (!server.isClosed()) {
            Socket client = server.accept();
            Socket broker;
            try {
                broker = new Socket("127.0.0.1", behind.port());
            } catch (IOException away) {
                client.close();
                continue;
            }
            sockets.add(client);
            sockets.add(broker);
            daemon(() -> copy(client, broker, true));
            daemon(() -> copy(broker, client, false));
        }
    }

    private void copy(Socket from, Socket to, boolean watched) throws IOException {
        try (from;
                to) {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            byte[] buffer = new byte[1 << 16];
            int count;
            while ((count = in.read(buffer)) > 0) {
                if (watched && (buffer[0] & 0xff) == PINGREQ) {
                    pings.incrementAndGet();
                }
                if (watched && isLast(Arrays.copyOf(buffer, count))) {
                    return;
                }
                out.write(buffer, 0, count);
            }
        }
    }

    private boolean isLast(byte[] bytes) {
        Predicate<byte[]> wanted = last.get();
        return wanted != null
                && wanted.test(bytes)
                && (forever || last.compareAndSet(wanted, null));
    }

    private interface Task {
        void run() throws IOException;
    }

    private static void daemon(Task task) {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                task.run();
                            } catch (IOException e) {
                                // an end like any other
                            }
                        });
        thread.setDaemon(true);
        thread.start();
    }
}
