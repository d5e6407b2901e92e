package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Outcomes of records that come out of turn. */
class SettlingTest {
    private final EventLoops loops = EventLoops.lease();
    private final Silent connection = new Silent(loops);
    private final List<OutRecord> records =
            IntStream.rangeClosed(1, 4).mapToObj(i -> new OutRecord(null, i, new byte[0])).toList();

    @AfterEach
    void close() {
        loops.close();
    }

    @Test
    void whatWasNotSentAtAllWaitsForItsTurn() throws Exception {
        records.forEach(connection::send);
        onTheNetworkThread(
                () -> {
                    connection.onFailure(records.get(2).sent, OutRecord.UNDELIVERABLE, "large");
                    connection.onFailure(records.get(1).sent, OutRecord.UNDELIVERABLE, "larger");
                });
        assertEquals(OutRecord.UNDER_WAY, records.get(1).outcome);
        onTheNetworkThread(
                () -> connection.onResult(records.get(0).sent, OutRecord.DELIVERED, null));
        onTheNetworkThread(
                () -> connection.onResult(records.get(3).sent, OutRecord.DELIVERED, null));
        assertEquals(
                List.of(
                        OutRecord.DELIVERED,
                        OutRecord.UNDELIVERABLE,
                        OutRecord.UNDELIVERABLE,
                        OutRecord.DELIVERED),
                records.stream().map(record -> record.outcome).toList());
        assertEquals("larger", records.get(1).problem);
        assertFalse(connection.said);
    }

    private void onTheNetworkThread(Runnable task) throws Exception {
        loops.group().next().submit(task).get();
    }

    /** Sends nothing. */
    private static final class Silent extends MqttConnection {
        boolean said;

        Silent(EventLoops loops) {
            super(
                    new LinkConfig(
                            BrokerAddress.parse("tcp://h:1"), "t", "c", Delivery.AT_LEAST_ONCE, 9),
                    loops,
                    new Deaf());
        }

        @Override
        void open(boolean reader) {}

        @Override
        int transmit(OutRecord record) {
            record.sent = "packet " + record.number;
            return 0;
        }

        @Override
        CompletableFuture<?> publish(String topic, byte[] payload, boolean retained) {
            return new CompletableFuture<>();
        }

        @Override
        byte[] payloadOf(Object message) {
            return new byte[0];
        }

        @Override
        int sizeOf(Object message) {
            return 0;
        }

        @Override
        int packetSizeOf(Object message) {
            return 0;
        }

        @Override
        boolean isNumbered() {
            return true;
        }

        @Override
        String stampOf(Object message) {
            return null;
        }

        @Override
        Parcel.Form formOf(Object message) {
            return Parcel.Form.PLAIN;
        }

        @Override
        boolean isMark(Object message) {
            return false;
        }

        @Override
        boolean isAcknowledged(Object message) {
            return true;
        }

        @Override
        void sendDisconnect() {
            said = true;
        }
    }

    private static final class Deaf implements MqttConnection.Events {
        @Override
        public void ready(MqttConnection connection, boolean sessionPresent, int sendMaximum) {}

        @Override
        public void arrived(MqttConnection connection) {}

        @Override
        public void settled(MqttConnection connection) {}

        @Override
        public void ended(MqttConnection connection, Throwable cause) {}
    }
}
