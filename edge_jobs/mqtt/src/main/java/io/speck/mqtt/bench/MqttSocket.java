package io.speck.mqtt.bench;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;

/**
 * Just enough MQTT 5 to load a broker: a client of a few hundred nanoseconds a message, so that the
 * load generator takes little of the core that it shares with the broker. Not thread-safe.
 */
final class MqttSocket implements AutoCloseable {
    /** Called for each packet read. */
    interface Packets {
        /**
         * A packet lies in {@code buffer} from its position (behind the fixed header) to its limit.
         */
        void packet(int header, ByteBuffer buffer);
    }

    static final int CONNECT = 0x10;
    static final int CONNACK = 0x20;
    static final int PUBLISH = 0x30;
    static final int PUBACK = 0x40;
    static final int SUBSCRIBE = 0x82;
    static final int SUBACK = 0x90;
    private static final int RECEIVE_MAXIMUM = 0x21; // the property's number
    private static final int BUFFER = 1 << 18;

    /** What is to be written; callers put whole packets, having made sure that there is room. */
    final ByteBuffer out = ByteBuffer.allocateDirect(BUFFER);

    private final ByteBuffer in = ByteBuffer.allocateDirect(BUFFER);
    private final SocketChannel channel;

    private MqttSocket(SocketChannel channel) {
        this.channel = channel;
    }

    /** Connects without a session, and returns when the broker has said yes. */
    static MqttSocket connect(String host, int port, String clientId) throws IOException {
        SocketChannel channel = SocketChannel.open(new InetSocketAddress(host, port));
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        MqttSocket socket = new MqttSocket(channel);
        byte[] id = clientId.getBytes(StandardCharsets.UTF_8);
        ByteBuffer out = socket.out;
        out.put((byte) CONNECT).put((byte) (10 + 4 + 2 + id.length));
        out.putShort((short) 4).put("MQTT".getBytes(StandardCharsets.UTF_8)).put((byte) 5);
        out.put((byte) 2).putShort((short) 0); // clean start; never asked for a sign of life
        out.put((byte) 3).put((byte) RECEIVE_MAXIMUM).putShort((short) 65535);
        out.putShort((short) id.length).put(id);
        socket.exchange(CONNACK, 1);
        return socket;
    }

    /** Returns when the broker has granted it. Only while nothing else is to be read. */
    void subscribe(String topic, int qos) throws IOException {
        byte[] name = topic.getBytes(StandardCharsets.UTF_8);
        out.put((byte) SUBSCRIBE).put((byte) (2 + 1 + 2 + name.length + 1));
        out.putShort((short) 1).put((byte) 0);
        out.putShort((short) name.length).put(name).put((byte) qos);
        exchange(SUBACK, 3);
    }

    /** From now on neither reading nor writing waits. */
    void register(Selector selector) throws IOException {
        channel.configureBlocking(false);
        channel.register(selector, SelectionKey.OP_READ);
    }

    /** Writes what the system takes. */
    void flush(Selector selector) throws IOException {
        if (out.position() > 0) {
            out.flip();
            channel.write(out);
            out.compact();
            int writing = out.position() > 0 ? SelectionKey.OP_WRITE : 0;
            channel.keyFor(selector).interestOps(SelectionKey.OP_READ | writing);
        }
    }

    /** Reads what is there. */
    void read(Packets packets) throws IOException {
        int count = channel.read(in);
        if (count < 0) {
            throw new EOFException("cannot go on: the broker has closed the connection");
        }
        if (count > 0) {
            in.flip();
            while (take(packets)) {}
            in.compact();
        }
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }

    /** The number at the buffer's position, in MQTT's variable length. */
    static int number(ByteBuffer buffer) {
        int value = 0;
        for (int shift = 0; ; shift += 7) {
            int digit = buffer.get();
            value |= (digit & 0x7f) << shift;
            if (digit >= 0) {
                return value;
            }
        }
    }

    static void putNumber(ByteBuffer buffer, int number) {
        int rest = number;
        for (; rest > 0x7f; rest >>>= 7) {
            buffer.put((byte) (rest | 0x80));
        }
        buffer.put((byte) rest);
    }

    private boolean take(Packets packets) {
        int start = in.position();
        int end = in.limit();
        int lengthEnd = start + 1;
        while (lengthEnd < end && in.get(lengthEnd) < 0) {
            lengthEnd++;
        }
        if (lengthEnd >= end) {
            return false;
        }
        int header = in.get() & 0xff;
        int length = number(in);
        if (in.remaining() < length) {
            in.position(start);
            return false;
        }
        int next = in.position() + length;
        in.limit(next);
        packets.packet(header, in);
        in.limit(end).position(next);
        return true;
    }

    /** Sends, and waits for an answer whose code (at an offset) is no refusal. */
    private void exchange(int wanted, int codeAt) throws IOException {
        out.flip();
        while (out.hasRemaining()) {
            channel.write(out);
        }
        out.clear();
        boolean[] answered = {false};
        while (!answered[0]) {
            read(
                    (header, packet) -> {
                        int code = packet.get(packet.position() + codeAt) & 0xff;
                        if (header != wanted || code >= 0x80) {
                            throw new IllegalStateException(
                                    "cannot load the broker: it answers packet 0x%x, code 0x%x"
                                            .formatted(header, code));
                        }
                        answered[0] = true;
                    });
        }
    }
}
