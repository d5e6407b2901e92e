package io.speck.link.sink;

import io.speck.link.protocol.ProducerEpoch;
import io.speck.link.transport.BrokerAddress;
import io.speck.link.transport.LinkConfig;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * What an exactly-once sink keeps in a checkpoint, to publish when the checkpoint is complete:
 * messages with rising numbers, and where they go. A repeat is the same to the byte, and goes to
 * the same link, whatever the job has become in the meantime.
 *
 * @param broker where it was when the checkpoint was taken
 * @param clientId of the sink that made it; a sink has another one on each link
 * @param messages there may be none
 * @param recent what was published not long ago, see {@link ResendWindow}; used only after a
 *     restore
 */
public record Committable(
        BrokerAddress broker,
        String topic,
        String clientId,
        NumberedMessages messages,
        List<NumberedMessages> recent) {

    /** @param first number of the messages that are to be added */
    static Committable forLink(
            LinkConfig link, ProducerEpoch epoch, long first, List<NumberedMessages> recent) {
        return new Committable(
                link.broker(),
                link.topic(),
                link.clientId(),
                new NumberedMessages(epoch, first, new ArrayList<>()),
                recent);
    }

    Committable withRecent(List<NumberedMessages> others) {
        return new Committable(broker, topic, clientId, messages, others);
    }

    /** The client id stands for the link, whose broker may have another address by now. */
    boolean isFor(LinkConfig link) {
        return topic.equals(link.topic()) && clientId.equals(link.clientId());
    }

    /** Of the form that checkpoints of running jobs hold. */
    public static final class Serializer implements StateSerializer<Committable> {
        private static final int VERSION = 4;

        @Override
        public int getVersion() {
            return VERSION;
        }

        @Override
        public byte[] serialize(Committable committable) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            out.writeUTF(committable.broker.toString());
            out.writeUTF(committable.topic);
            out.writeUTF(committable.clientId);
            committable.messages.write(out);
            NumberedMessages.writeAll(committable.recent, out);
            return StateCompression.compress(bytes.toByteArray());
        }

        @Override
        public Committable deserialize(int version, byte[] bytes) throws IOException {
            if (version != VERSION) {
                throw new IOException("cannot read a committable of version " + version);
            }
            DataInputStream in =
                    new DataInputStream(
                            new ByteArrayInputStream(StateCompression.decompress(bytes)));
            return new Committable(
                    BrokerAddress.ofNormalised(in.readUTF()),
                    in.readUTF(),
                    in.readUTF(),
                    NumberedMessages.read(in),
                    NumberedMessages.readAll(in));
        }
    }
}
