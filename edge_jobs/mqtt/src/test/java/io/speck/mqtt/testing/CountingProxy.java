package io.speck.mqtt.testing;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Stands before a broker and counts the bytes of PUBLISH packets, announcements left out. May
 * refuse one of several subscriptions, as a broker does whose user may not read that topic.
 */
public final class CountingProxy implements AutoCloseable {
    private static final int PUBLISH = 3;
    private static final int SUBACK = 9;
    private static final byte NOT_AUTHORIZED = (byte) 0x87;
    private static final String ANNOUNCEMENT = "\"v\":1";

    private final Mosquitto behind;
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private volatile int refused = -1;
    private final AtomicLong toBroker = new AtomicLong();
    private final AtomicLong fromBroker = new AtomicLong();

    public CountingProxy(Mosquitto behind) throws IOException {
        this.behind = behind;
        daemon(this::accept);
    }

    public String address() {
        return "tcp://127.0.0.1:" + server.getLocalPort();
    }

    /** From now on refuses the subscription at this place of packets that ask for several. */
    public void refuse(int place) {
        refused = place;
    }

    public long toBroker() {
        return toBroker.get();
    }

    public long fromBroker() {
        return fromBroker.get();
    }

    @Override
    public void close() throws IOException {
        server.close();
    }

    private void accept() throws IOException {
        while (!server.isClosed()) {
            Socket client = server.accept();
            Socket broker = new Socket("127.0.0.1", behind.port());
            daemon(() -> copy(client, broker, toBroker));
            daemon(() -> copy(broker, client, fromBroker));
        }
    }

    private void copy(Socket from, Socket to, AtomicLong bytes) throws IOException {
        try (from;
                to) {
            DataInputStream in = new DataInputStream(from.getInputStream());
            OutputStream out = to.getOutputStream();
            while (true) {
                byte[] header = new byte[5];
                int size = 0;
                header[size++] = in.readByte();
                int length = 0;
                int shift = 0;
                do {
                    header[size++] = in.readByte();
                    length |= (header[size - 1] & 0x7f) << shift;
                    shift += 7;
                } while (header[size - 1] < 0);
                byte[] body = new byte[length];
                in.readFully(body);
                String text = new String(body, StandardCharsets.ISO_8859_1);
                if ((header[0] & 0xff) >> 4 == PUBLISH && !text.contains(ANNOUNCEMENT)) {
                    bytes.addAndGet(size + length);
                }
                int codes = 2 + 1; // packet id, no properties
                if ((header[0] & 0xff) >> 4 == SUBACK && length > codes + 1 && refused >= 0) {
                    body[codes + refused] = NOT_AUTHORIZED;
                }
                out.write(header, 0, size);
                out.write(body);
                out.flush();
            }
        }
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
