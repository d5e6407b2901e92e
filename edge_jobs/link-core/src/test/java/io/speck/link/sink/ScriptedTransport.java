package io.speck.link.sink;

import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.protocol.SentNumber;
import io.speck.link.protocol.SentRecords;
import io.speck.link.transport.BrokerAddress;
import io.speck.link.transport.Guilt;
import io.speck.link.transport.InFlightMessages;
import io.speck.link.transport.LinkClient;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.OutgoingMessage;
import io.speck.link.transport.OutgoingMessage.Outcome;
import io.speck.link.transport.ReaderConnection;
import io.speck.link.transport.ReaderListener;
import io.speck.link.transport.ReadingRange;
import io.speck.link.transport.Transport;
import io.speck.link.transport.WriterConnection;
import io.speck.link.transport.WriterListener;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

/** A broker in the test's own thread, which answers what the test says, when it says so. */
final class ScriptedTransport implements Transport {
    static final BrokerAddress ADDRESS = BrokerAddress.ofNormalised("scripted://here");

    private final ArrayDeque<Runnable> scheduled = new ArrayDeque<>();
    private final List<Long> sent = new ArrayList<>();
    private WriterListener listener;
    private Connection connection;
    private SentNumber asked;

    /** Connects, also after the last connection has ended. */
    void connect(int window) {
        connect(window, null);
    }

    /** The same to a broker that says what it has; if not null. */
    void connect(int window, SentRecords known) {
        asked = listener.oldestDoubtful();
        connection = new Connection();
        if (known != null) {
            listener.onConfirmed(connection, known);
        }
        listener.onReady(connection, window);
    }

    /** Returns the oldest record of which it mattered, at the last connection, if it was there. */
    SentNumber asked() {
        return asked;
    }

    /** Answers the oldest messages without an outcome, with one outcome each. */
    void answer(Outcome... outcomes) {
        for (Outcome outcome : outcomes) {
            String problem = outcome == Outcome.DELIVERED ? null : "it says so";
            Object oldest = connection.packets.remove();
            connection.inFlight.settle(oldest, outcome, problem);
        }
        listener.onOutcomes(connection);
    }

    /** A reader's session is lost. */
    void loseReader() {
        listener.onReaderLost(connection);
    }

    /** Lets the time pass until what is scheduled by now has run. */
    void passTime() {
        for (int left = scheduled.size(); left > 0; left--) {
            scheduled.remove().run();
        }
    }

    /** Returns the numbers of the messages that were sent since the last call, in their order. */
    List<Long> takeSent() {
        List<Long> numbers = List.copyOf(sent);
        sent.clear();
        return numbers;
    }

    @Override
    public LinkClient<? extends WriterConnection> openWriter(
            LinkConfig link, WriterListener events) {
        listener = events;
        return new Client();
    }

    @Override
    public LinkClient<? extends ReaderConnection> openReader(
            LinkConfig link, ReadingRange range, ReaderListener events) {
        throw new UnsupportedOperationException("nobody reads here");
    }

    @Override
    public Set<String> schemes() {
        return Set.of(ADDRESS.scheme());
    }

    @Override
    public String example() {
        return ADDRESS.toString();
    }

    @Override
    public BrokerAddress parse(String address) {
        return ADDRESS;
    }

    @Override
    public boolean keepsLogs() {
        return false;
    }

    @Override
    public String sizeSettings() {
        return "nothing";
    }

    private final class Client implements LinkClient<WriterConnection> {
        @Override
        public void start() {}

        @Override
        public WriterConnection current() {
            return connection;
        }

        @Override
        public boolean isConnected() {
            return connection != null;
        }

        @Override
        public String problem() {
            return "";
        }

        @Override
        public void awaitReady() {}

        @Override
        public Executor networkThread() {
            return Runnable::run;
        }

        @Override
        public void schedule(long delayMs, Runnable task) {
            scheduled.add(task);
        }

        @Override
        public void close() {}
    }

    private final class Connection implements WriterConnection {
        private final InFlightMessages inFlight = new InFlightMessages();
        private final ArrayDeque<Object> packets = new ArrayDeque<>();

        @Override
        public int send(OutgoingMessage message) {
            Object packet = new Object();
            message.setPacket(packet);
            packets.add(packet);
            inFlight.add(message);
            sent.add(message.number());
            return message.payloadBytes();
        }

        @Override
        public long settledCount() {
            return inFlight.settledCount();
        }

        @Override
        public int maxPayload(ProducerEpoch epoch) {
            return Integer.MAX_VALUE;
        }

        @Override
        public void noteTooLarge(OutgoingMessage message) {}

        @Override
        public Guilt guilt() {
            return Guilt.NONE;
        }

        @Override
        public CompletableFuture<String> reportSent(byte[] json) {
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public boolean isReady() {
            return true;
        }

        @Override
        public boolean isEnded() {
            return this != connection;
        }

        @Override
        public boolean isNumbered() {
            return true;
        }
    }
}
