package io.speck.mqtt;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;

/**
 * What a reader has taken: of each producer, for its last {@value #EPOCHS_KEPT} epochs, which
 * numbers. Part of the split's state, so it survives a change of the link. Not thread-safe.
 *
 * <p>A reader that meets a producer for the first time may have come late: numbers below the first
 * one it sees are not counted as missing then (they are still taken when they come). In every later
 * epoch of that producer numbering is known to begin at 1.
 */
final class TakenNumbers {
    static final int EPOCHS_KEPT = 4;

    private final TreeMap<String, TreeMap<Long, NumberRanges>> producers = new TreeMap<>();
    private long messages;
    private long lost; // holes of epochs that are not kept any more

    // the stamp before the number, as last seen, and what it led to: saves two look-ups a message
    private String lastPrefix = "";
    private NumberRanges lastRanges;

    /**
     * Notes a message.
     *
     * @param stamp its {@code <producer>/<epoch>/<number>}; null or malformed for a foreign one
     * @return false when it is a repeat
     */
    boolean take(String stamp) {
        boolean isNew = stamp == null || takeStamped(stamp);
        if (isNew) {
            messages++;
        }
        return isNew;
    }

    /** All messages taken, foreign ones included, repeats not. */
    long messages() {
        return messages;
    }

    /** Holes of all producers and epochs, also of those that are not kept any more. */
    long missing() {
        long missing = lost;
        for (TreeMap<Long, NumberRanges> epochs : producers.values()) {
            for (NumberRanges ranges : epochs.values()) {
                missing += ranges.missing();
            }
        }
        return missing;
    }

    TakenNumbers copy() {
        TakenNumbers copy = new TakenNumbers();
        copy.messages = messages;
        copy.lost = lost;
        producers.forEach(
                (producer, epochs) -> {
                    TreeMap<Long, NumberRanges> copied = new TreeMap<>();
                    epochs.forEach((epoch, ranges) -> copied.put(epoch, ranges.copy()));
                    copy.producers.put(producer, copied);
                });
        return copy;
    }

    /**
     * The text of the retained message on {@code speck/taken/<client id>}. A hole is missing as
     * long as its epoch is kept, and lost when it is not.
     */
    String toJson(long atMs, long checkpoint) {
        StringBuilder json = new StringBuilder(128);
        json.append("{\"v\":1,\"at\":").append(atMs);
        json.append(",\"checkpoint\":").append(checkpoint).append(",\"taken\":{");
        appendNumbers(json, false);
        json.append("},\"missing\":{");
        appendNumbers(json, true);
        json.append("},\"lost\":").append(lost);
        return json.append(",\"messages\":").append(messages).append('}').toString();
    }

    void write(DataOutput out) throws IOException {
        out.writeLong(messages);
        out.writeLong(lost);
        out.writeInt(producers.size());
        for (Map.Entry<String, TreeMap<Long, NumberRanges>> producer : producers.entrySet()) {
            out.writeUTF(producer.getKey());
            out.writeInt(producer.getValue().size());
            for (Map.Entry<Long, NumberRanges> epoch : producer.getValue().entrySet()) {
                out.writeLong(epoch.getKey());
                epoch.getValue().write(out);
            }
        }
    }

    /** @param withLost not in the first version of the state */
    static TakenNumbers read(DataInput in, boolean withLost) throws IOException {
        TakenNumbers taken = new TakenNumbers();
        taken.messages = in.readLong();
        taken.lost = withLost ? in.readLong() : 0;
        int producers = in.readInt();
        for (int p = 0; p < producers; p++) {
            TreeMap<Long, NumberRanges> epochs = new TreeMap<>();
            taken.producers.put(in.readUTF(), epochs);
            int count = in.readInt();
            for (int e = 0; e < count; e++) {
                epochs.put(in.readLong(), NumberRanges.read(in));
            }
        }
        return taken;
    }

    private boolean takeStamped(String stamp) {
        int slash = stamp.lastIndexOf('/');
        long number = Stamp.digits(stamp, slash + 1, stamp.length());
        if (slash <= 0 || number < 1) {
            return true; // not ours after all
        }
        if (slash + 1 == lastPrefix.length() && stamp.startsWith(lastPrefix)) {
            return lastRanges.add(number);
        }
        int before = stamp.lastIndexOf('/', slash - 1);
        long epoch = Stamp.digits(stamp, before + 1, slash);
        if (before <= 0 || epoch < 0) {
            return true;
        }
        lastRanges = rangesOf(stamp.substring(0, before), epoch);
        lastPrefix = stamp.substring(0, slash + 1);
        return lastRanges.add(number);
    }

    private NumberRanges rangesOf(String producer, long epoch) {
        TreeMap<Long, NumberRanges> epochs = producers.get(producer);
        boolean known = epochs != null;
        if (!known) {
            epochs = new TreeMap<>();
            producers.put(producer, epochs);
        }
        NumberRanges ranges = epochs.get(epoch);
        if (ranges == null) {
            ranges = new NumberRanges();
            if (known && epoch > epochs.lastKey()) {
                ranges.startAtZero();
            }
            epochs.put(epoch, ranges);
            while (epochs.size() > EPOCHS_KEPT) {
                lost += epochs.pollFirstEntry().getValue().missing();
            }
        }
        return ranges;
    }

    private void appendNumbers(StringBuilder json, boolean missing) {
        String producerComma = "";
        for (Map.Entry<String, TreeMap<Long, NumberRanges>> producer : producers.entrySet()) {
            json.append(producerComma).append(Json.quoted(producer.getKey())).append(":{");
            String epochComma = "";
            for (Map.Entry<Long, NumberRanges> epoch : producer.getValue().entrySet()) {
                NumberRanges ranges = epoch.getValue();
                json.append(epochComma).append('"').append(epoch.getKey()).append("\":");
                json.append(missing ? ranges.missing() : ranges.contiguous());
                epochComma = ",";
            }
            json.append('}');
            producerComma = ",";
        }
    }
}
