package io.speck.mqtt.bench;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Selector;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * One measurement. A single thread does everything, so that messages are handled in batches as
 * large as there is work for, and the core is left to the broker in between.
 *
 * <p>A message's payload begins with the time when it was due and its number. It carries the stamp
 * that our sinks give, so that the work of a reader that keeps numbers is part of what is measured.
 */
final class Measurement implements AutoCloseable {
    /**
     * What to measure.
     *
     * @param window most messages between publisher and reader at once
     * @param rate messages per second; 0: as many as the window lets through
     */
    record Settings(
            String in,
            String out,
            int qos,
            int bytes,
            int window,
            int rate,
            double warmUpS,
            double seconds) {}

    private static final long TICK_NS = 1_000_000; // with a rate: due each millisecond
    private static final long NAP_NS = 100_000; // with a rate: how exactly arrivals are timed
    private static final long LONG_NAP_NS = 400_000; // without: lets work for a batch come together
    private static final long SILENCE_NS = TimeUnit.SECONDS.toNanos(2);
    private static final long LONG_SILENCE_NS = TimeUnit.SECONDS.toNanos(10); // over checkpoints
    private static final long START_LIMIT_NS = TimeUnit.SECONDS.toNanos(30);
    private static final int STAMP_DIGITS = 12;
    private static final int LATENCIES = 4_000_000;

    private final Settings settings;
    private final Selector selector = Selector.open();
    private final MqttSocket publisher;
    private final MqttSocket reader;
    private final byte[] packet; // a PUBLISH whose changing parts are put in anew each time
    private final ByteBuffer changing;
    private final int packetIdAt;
    private final int stampAt;
    private final int payloadAt;

    private long probes = Long.MAX_VALUE; // the last number of those that do not count
    private long sent; // the last number
    private long acknowledged;
    private long received; // the last number
    private long count;
    private long repeated;
    private long lost;
    private int packetId;
    private long lastArrivalNs;
    private long now;
    private final long silenceNs;

    private long startNs; // of the measured span
    private long endNs = Long.MAX_VALUE;
    private long measured;
    private final int[] latenciesUs;

    Measurement(String host, int port, Settings settings) throws IOException {
        this.settings = settings;
        this.silenceNs = settings.qos() == 0 ? SILENCE_NS : LONG_SILENCE_NS;
        String id = "load-" + UUID.randomUUID();
        this.reader = MqttSocket.connect(host, port, id + "-r");
        this.reader.subscribe(settings.out(), settings.qos());
        this.publisher = MqttSocket.connect(host, port, id + "-w");
        this.reader.register(selector);
        this.publisher.register(selector);
        this.latenciesUs = new int[settings.rate() == 0 ? 0 : LATENCIES];

        byte[] topic = settings.in().getBytes(StandardCharsets.UTF_8);
        String prefix = "load-" + settings.qos() + "/" + System.currentTimeMillis() + "/";
        byte[] stamp = (prefix + "0".repeat(STAMP_DIGITS)).getBytes(StandardCharsets.UTF_8);
        int idBytes = settings.qos() == 0 ? 0 : 2;
        int properties = 1 + 2 + 5 + 2 + stamp.length;
        ByteBuffer buffer = ByteBuffer.allocate(settings.bytes() + topic.length + 100);
        buffer.put((byte) (MqttSocket.PUBLISH | settings.qos() << 1));
        int length = 2 + topic.length + idBytes + 1 + properties + settings.bytes();
        MqttSocket.putNumber(buffer, length);
        buffer.putShort((short) topic.length).put(topic);
        this.packetIdAt = buffer.position();
        buffer.position(packetIdAt + idBytes);
        buffer.put((byte) properties).put((byte) 0x26); // a user property
        buffer.putShort((short) 5).put("speck".getBytes(StandardCharsets.UTF_8));
        buffer.putShort((short) stamp.length).put(stamp);
        this.payloadAt = buffer.position();
        this.stampAt = payloadAt - STAMP_DIGITS;
        this.packet = Arrays.copyOf(buffer.array(), payloadAt + settings.bytes());
        Arrays.fill(packet, payloadAt, packet.length, (byte) 'x');
        this.changing = ByteBuffer.wrap(packet);
    }

    /**
     * Runs, and returns {@code {"msgs_per_s", "sent", "received", "lost", "repeated", "p50_ms",
     * "p99_ms"}}; the latencies only with a rate. Lost are those that had not come when a while
     * had passed without any (2 s at QoS 0, else 10), or that came behind later ones.
     */
    String measure() throws IOException {
        awaitFirst();
        startNs = now + (long) (settings.warmUpS() * 1e9);
        endNs = startNs + (long) (settings.seconds() * 1e9);
        runUntil(startNs);
        System.out.println("measuring");
        runUntil(endNs);
        System.out.println("measured");
        drain();
        String latencies = settings.rate() == 0 ? "" : latenciesAsJson();
        return String.format(
                Locale.ROOT,
                "{\"msgs_per_s\":%.1f,\"sent\":%d,\"received\":%d,\"lost\":%d,\"repeated\":%d%s}",
                measured / settings.seconds(),
                sent - probes,
                count,
                lost + sent - received,
                repeated,
                latencies);
    }

    @Override
    public void close() throws IOException {
        publisher.close();
        reader.close();
        selector.close();
    }

    /** Sends single messages until one gets through: what lies between may be just starting. */
    private void awaitFirst() throws IOException {
        now = System.nanoTime();
        long deadline = now + START_LIMIT_NS;
        while (lastArrivalNs == 0) {
            publish(now);
            long next = now + TimeUnit.MILLISECONDS.toNanos(200);
            while (lastArrivalNs == 0 && now < next) {
                exchange(10);
            }
            if (now > deadline) {
                throw new IllegalStateException(
                        "cannot measure: nothing comes from %s to %s"
                                .formatted(settings.in(), settings.out()));
            }
        }
        probes = sent; // some may have had no reader, others come later
        received = sent;
    }

    private void runUntil(long until) throws IOException {
        if (settings.rate() > 0) {
            runAtRateUntil(until);
            return;
        }
        while (now < until) {
            if (now - lastArrivalNs > silenceNs) {
                lost += sent - received;
                received = sent; // they do not come any more: make room
                lastArrivalNs = now;
            }
            while (sent - received < settings.window() && canPublish()) {
                publish(now);
            }
            exchange(100);
            LockSupport.parkNanos(LONG_NAP_NS);
        }
    }

    private void runAtRateUntil(long until) throws IOException {
        long begin = now;
        long before = sent;
        while (now < until) {
            long ticks = (now - begin) / TICK_NS;
            long due = before + ticks * settings.rate() / 1000;
            while (sent < due && canPublish()) {
                long tick = ((sent + 1 - before) * 1000 + settings.rate() - 1) / settings.rate();
                publish(begin + tick * TICK_NS);
            }
            exchange(0);
            LockSupport.parkNanos(NAP_NS);
        }
    }

    private void drain() throws IOException {
        while (received < sent && now - lastArrivalNs < silenceNs) {
            exchange(100);
        }
    }

    private boolean canPublish() {
        boolean free = settings.qos() == 0 || sent - acknowledged < settings.window();
        return free && publisher.out.remaining() >= packet.length;
    }

    private void publish(long dueNs) {
        sent++;
        if (settings.qos() > 0) {
            packetId = packetId % 65535 + 1;
            changing.putShort(packetIdAt, (short) packetId);
        }
        long rest = sent;
        for (int i = stampAt + STAMP_DIGITS - 1; i >= stampAt; i--, rest /= 10) {
            packet[i] = (byte) ('0' + rest % 10);
        }
        changing.putLong(payloadAt, dueNs).putLong(payloadAt + 8, sent);
        publisher.out.put(packet);
    }

    /** Writes, waits for something to happen (0: does not), reads. */
    private void exchange(int waitMs) throws IOException {
        publisher.flush(selector);
        if (waitMs == 0) {
            selector.selectNow();
        } else {
            selector.select(waitMs);
        }
        selector.selectedKeys().clear();
        now = System.nanoTime();
        publisher.read((header, buffer) -> acknowledged++);
        reader.read(this::receive);
        reader.flush(selector);
    }

    private void receive(int header, ByteBuffer buffer) {
        if ((header & 0xf0) != MqttSocket.PUBLISH) {
            return;
        }
        buffer.position(buffer.getShort(buffer.position()) + 2 + buffer.position());
        if ((header & 0x06) != 0) {
            reader.out.putInt(MqttSocket.PUBACK << 24 | 2 << 16 | buffer.getShort() & 0xffff);
        }
        int properties = MqttSocket.number(buffer);
        int payload = buffer.position() + properties;
        long due = buffer.getLong(payload);
        long number = buffer.getLong(payload + 8);
        lastArrivalNs = now;
        if (number <= probes) {
            return;
        }
        count++;
        if (number <= received) {
            repeated++;
            return;
        }
        lost += number - received - 1;
        received = number;
        if (startNs > 0 && now >= startNs && now < endNs) {
            if (measured < latenciesUs.length) {
                latenciesUs[(int) measured] = (int) ((now - due) / 1000);
            }
            measured++;
        }
    }

    private String latenciesAsJson() {
        int[] sorted = Arrays.copyOf(latenciesUs, (int) Math.min(measured, latenciesUs.length));
        Arrays.sort(sorted);
        return String.format(
                Locale.ROOT,
                ",\"p50_ms\":%.3f,\"p99_ms\":%.3f",
                percentile(sorted, 50),
                percentile(sorted, 99));
    }

    private static double percentile(int[] sorted, int percent) {
        return sorted.length == 0 ? -1 : sorted[(sorted.length - 1) * percent / 100] / 1000.0;
    }
}
