package io.speck.mqtt.testing;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Collection;
import java.util.concurrent.ConcurrentLinkedQueue;

/** Stands before a broker and lets only MQTT 3.1.1 through, as a broker of that age would. */
public final class Mqtt311Proxy implements AutoCloseable {
    /** How brokers of that age refuse MQTT 5. */
    public enum Refusal {
        /** As MQTT 5 asks of them. */
        OF_MQTT_5(new byte[] {0x20, 3, 0, (byte) 0x84, 0}),
        /** By the protocol that they know: unacceptable protocol version. */
        OF_MQTT_311(new byte[] {0x20, 2, 0, 1}),
        /** They hang up. */
        SILENT(new byte[0]);

        private final byte[] connAck;

        Refusal(byte[] connAck) {
            this.connAck = connAck;
        }
    }

    private static final int LEVEL_AT = 6; // after the protocol's name
    private static final int MQTT_5 = 5;

    private final Mosquitto behind;
    private final Refusal refusal;
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private volatile boolean replaced;
    private final Collection<Socket> sockets = new ConcurrentLinkedQueue<>();

    public Mqtt311Proxy(Mosquitto behind) throws IOException {
        this(behind, Refusal.OF_MQTT_5);
    }

    public Mqtt311Proxy(Mosquitto behind, Refusal refusal) throws IOException {
        this.behind = behind;
        this.refusal = refusal;
        daemon(this::accept);
    }

    public String address() {
        return "tcp://127.0.0.1:" + server.getLocalPort();
    }

    /** A broker that speaks MQTT 5 takes its place. */
    public void replace() throws IOException {
        replaced = true;
        for (Socket socket : sockets) {
            socket.close();
        }
    }

    @Override
    public void close() throws IOException {
        server.close();
        for (Socket socket : sockets) {
            socket.close();
        }
    }

    private void accept() throws IOException {
        while (!server.isClosed()) {
            Socket client = server.accept();
            sockets.add(client);
            daemon(() -> serve(client));
        }
    }

    private void serve(Socket client) throws IOException {
        InputStream in = client.getInputStream();
        int type = in.read();
        int length = in.read(); // a CONNECT of these tests is short
        if (length > 127) {
            length = length - 128 + 128 * in.read();
        }
        byte[] body = in.readNBytes(length);
        if (body[LEVEL_AT] == MQTT_5 && !replaced) {
            client.getOutputStream().write(refusal.connAck);
            client.close();
            return;
        }
        Socket broker = new Socket("127.0.0.1", behind.port());
        sockets.add(broker);
        OutputStream out = broker.getOutputStream();
        out.write(type);
        if (length > 127) {
            out.write(length % 128 + 128);
            out.write(length / 128);
        } else {
            out.write(length);
        }
        out.write(body);
        daemon(() -> copy(broker, client));
        copy(client, broker);
    }

    private static void copy(Socket from, Socket to) throws IOException {
        try {
            from.getInputStream().transferTo(to.getOutputStream());
        } finally {
            from.close();
            to.close();
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
