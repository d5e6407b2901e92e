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
 * @param run the records; there may be none
 * @param before what was published not long ago, see {@link ResendWindow}; of use after a restore
 *     only
 */
record Batch(BrokerAddress broker, String topic, String clientId, Run run, List<Run> before) {

    /** @param first number of the records that are to be added */
    static Batch to(LinkConfig link, Series series, long first, List<Run> before) {
        return new Batch(
                link.broker(),
                link.topic(),
                link.clientId(),
                new Run(series, first, new ArrayList<>()),
                before);
    }

    Batch after(List<Run> published) {
        return new Batch(broker, topic, clientId, run, published);
    }

    boolean isFor(LinkConfig link) {
        return broker.equals(link.broker())
                && topic.equals(link.topic())
                && clientId.equals(link.clientId());
    }

    static final class Serializer implements SimpleVersionedSerializer<Batch> {
        private static final int VERSION = 3; // 1 had no `before`, 2 one record a message

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
            batch.run.write(out);
            Run.writeAll(batch.before, out);
            return bytes.toByteArray();
        }

        @Override
        public Batch deserialize(int version, byte[] bytes) throws IOException {
            if (version < 1 || version > VERSION) {
                throw new IOException("cannot read a batch of version " + version);
            }
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            return new Batch(
                    BrokerAddress.parse(in.readUTF()),
                    in.readUTF(),
                    in.readUTF(),
                    Run.read(in, version < 3),
                    version == 1 ? List.of() : Run.readAll(in, version < 3));
        }
    }
}
