package io.speck.mqtt;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * What an exactly-once sink keeps in a checkpoint, to publish when the checkpoint is complete:
 * records with rising numbers, and where they go. A repeat is the same to the byte, and goes to the
 * same link, whatever the job has become in the meantime.
 *
 * @param clientId of the sink that made it
 * @param first number; the others follow without holes
 */
record Batch(
        BrokerAddress broker,
        String topic,
        String clientId,
        Series series,
        long first,
        List<byte[]> payloads) {

    static Batch to(LinkConfig link, Series series, long first) {
        return new Batch(
                link.broker(), link.topic(), link.clientId(), series, first, new ArrayList<>());
    }

    boolean isFor(LinkConfig link) {
        return broker.equals(link.broker())
                && topic.equals(link.topic())
                && clientId.equals(link.clientId());
    }

    static final class Serializer implements SimpleVersionedSerializer<Batch> {
        private static final int VERSION = 1;

        @Override
        public int getVersion() {
            return VERSION;
        }

        @Override
        public byte[] serialize(Batch batch) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            out.writeUTF(batch.broker.toString());
            out.writeUTF(batch.topic);
            out.writeUTF(batch.clientId);
            out.writeUTF(batch.series.producer());
            out.writeLong(batch.series.epoch());
            out.writeLong(batch.first);
            out.writeInt(batch.payloads.size());
            for (byte[] payload : batch.payloads) {
                out.writeInt(payload.length);
                out.write(payload);
            }
            return bytes.toByteArray();
        }

        @Override
        public Batch deserialize(int version, byte[] bytes) throws IOException {
            if (version != VERSION) {
                throw new IOException("cannot read a batch of version " + version);
            }
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            BrokerAddress broker = BrokerAddress.parse(in.readUTF());
            String topic = in.readUTF();
            String clientId = in.readUTF();
            Series series = Series.of(in.readUTF(), in.readLong());
            long first = in.readLong();
            int count = in.readInt();
            List<byte[]> payloads = new ArrayList<>(count);
            for (int i = 0; i < count; i++) {
                payloads.add(in.readNBytes(in.readInt()));
            }
            return new Batch(broker, topic, clientId, series, first, payloads);
        }
    }
}
