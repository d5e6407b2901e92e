package io.speck.mqtt;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What a reader has taken: of each producer, for the last {@value #EPOCHS_KEPT} epochs met, which
 * numbers. Part of the split's state, so it survives a change of the link. Not thread-safe.
 *
 * <p>A reader that meets a producer for the first time, or on another link than before, may have
 * come late: numbers below the first one it sees are not counted as missing then (they are still
 * taken when they come). In every later epoch of that producer numbering is known to begin at 1.
 *
 * <p>Anybody may publish to a topic, so all is bounded: past {@value #MOST_PRODUCERS} producers the
 * one not heard for longest is forgotten.
 */
final class TakenNumbers {
    static final int EPOCHS_KEPT = 4;
    static final int MOST_PRODUCERS = 1000;
    static final int LONGEST_NAME = 200;

    /** How many ranges a retained message holds: no broker takes a message of any size. */
    static final int MOST_RANGES_SAID = 5 * NumberRanges.MOST_RANGES;

    /** Epochs in the order in which they were met: they need not rise. */
    private static final class Producer {
        final LinkedHashMap<Long, NumberRanges> epochs = new LinkedHashMap<>();

        /** Nothing was heard of it on this link: a new epoch may have begun without us. */
        boolean unheard = true;
    }

    private final LinkedHashMap<String, Producer> producers = // the last one heard comes last
            new LinkedHashMap<>(16, 0.75f, true);
    private long messages;
    private long lost; // holes of epochs and producers that are not kept any more
    private long link; // stands for the link last read; 0: none

    // the stamp before the number, as last seen, and what it led to: saves two look-ups a message
    private String lastPrefix = "";
    private Producer lastProducer;
    private NumberRanges lastRanges;

    /**
     * To be called before reading. If the link is another one than before, nothing is known about
     * what went over it meanwhile. The state keeps no more than a hash of its name.
     */
    void readOver(String clientId) {
        long now = hash(clientId);
        if (link != 0 && link != now) {
            for (Producer producer : producers.values()) {
                producer.unheard = true;
                producer.epochs.values().forEach(NumberRanges::leave);
            }
            lastPrefix = "";
        }
        link = now;
    }

    /**
     * To be called after {@link #readOver}, at each start: notes what the reader before this one has
     * taken of the link. Done again, also after more was taken, it changes nothing.
     *
     * <p>Numbers that were missing here are lost when they are in it: they went over a former link.
     */
    void takeOver(HandOver before) {
        noteHeard();
        lastPrefix = ""; // what it led to may not be kept
        Map<String, Long> last = new HashMap<>(); // epoch taken over, by producer
        for (HandOver.Entry entry : before.entries()) {
            Producer producer = producerOf(entry.producer());
            producer.unheard = false;
            NumberRanges ranges = place(producer, entry.epoch(), last.get(entry.producer()));
            if (ranges != null) {
                last.put(entry.producer(), entry.epoch());
                long missingBefore = ranges.missing();
                ranges.takeOver(entry.upTo(), entry.above());
                lost += Math.max(0, missingBefore - ranges.missing());
            }
        }
    }

    /**
     * The ranges of an epoch that is handed over. A new one has its place before the first that is
     * higher: this reader may have met others since.
     *
     * @param after the epoch handed over before this one, which was met earlier; null: none
     * @return null when all that are kept are newer
     */
    private NumberRanges place(Producer producer, long epoch, Long after) {
        NumberRanges known = producer.epochs.get(epoch);
        if (known != null) {
            return known;
        }
        Map<Long, NumberRanges> newer = new LinkedHashMap<>();
        boolean passed = after == null;
        for (Map.Entry<Long, NumberRanges> other : producer.epochs.entrySet()) {
            if (passed && (!newer.isEmpty() || other.getKey() > epoch)) {
                newer.put(other.getKey(), other.getValue());
            }
            passed |= other.getKey().equals(after);
        }
        if (newer.size() == EPOCHS_KEPT) {
            return null;
        }
        NumberRanges ranges = new NumberRanges();
        makeRoom(producer);
        producer.epochs.keySet().removeAll(newer.keySet());
        producer.epochs.put(epoch, ranges);
        producer.epochs.putAll(newer);
        return ranges;
    }

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

    /**
     * Notes one of several records that came together.
     *
     * @param series {@code <producer>/<epoch>/}, as {@link Stamp#many} gives it
     * @return false when it is a repeat
     */
    boolean take(String series, long number) {
        boolean known = series.equals(lastPrefix) || find(series);
        boolean isNew = !known || lastRanges.add(number);
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
        for (Producer producer : producers.values()) {
            missing += missing(producer);
        }
        return missing;
    }

    /** Those of what is not kept any more: nothing that comes can fill them. */
    long lost() {
        return lost;
    }

    TakenNumbers copy() {
        noteHeard();
        TakenNumbers copy = new TakenNumbers();
        copy.messages = messages;
        copy.lost = lost;
        copy.link = link;
        producers.forEach(
                (name, producer) -> {
                    Producer copied = new Producer();
                    copied.unheard = producer.unheard;
                    producer.epochs.forEach(
                            (epoch, ranges) -> copied.epochs.put(epoch, ranges.copy()));
                    copy.producers.put(name, copied);
                });
        return copy;
    }

    /**
     * The text of the retained message on {@code speck/taken/<client id>}. A hole is missing as
     * long as its epoch is kept, and lost when it is not.
     *
     * @param mark the last that came through the session: all before it is taken; null: none
     */
    String toJson(long atMs, long checkpoint, String mark) {
        StringBuilder json = new StringBuilder(128);
        json.append("{\"v\":1,\"at\":").append(atMs);
        json.append(",\"checkpoint\":").append(checkpoint).append(",\"taken\":{");
        appendNumbers(json, false);
        json.append("},\"missing\":{");
        appendNumbers(json, true);
        json.append('}');
        appendAbove(json);
        json.append(",\"lost\":").append(lost);
        json.append(",\"messages\":").append(messages);
        if (mark != null) {
            json.append(",\"mark\":").append(Json.quoted(mark));
        }
        return json.append('}').toString();
    }

    void write(DataOutput out) throws IOException {
        noteHeard();
        out.writeLong(messages);
        out.writeLong(lost);
        out.writeLong(link);
        out.writeInt(producers.size());
        for (Map.Entry<String, Producer> producer : producers.entrySet()) {
            out.writeUTF(producer.getKey());
            out.writeBoolean(producer.getValue().unheard);
            out.writeInt(producer.getValue().epochs.size());
            for (Map.Entry<Long, NumberRanges> epoch : producer.getValue().epochs.entrySet()) {
                out.writeLong(epoch.getKey());
                epoch.getValue().write(out);
            }
        }
    }

    /** @param old the first version of the state: numbers only */
    static TakenNumbers read(DataInput in, boolean old) throws IOException {
        TakenNumbers taken = new TakenNumbers();
        taken.messages = in.readLong();
        taken.lost = old ? 0 : in.readLong();
        taken.link = old ? 0 : in.readLong();
        int producers = in.readInt();
        for (int p = 0; p < producers; p++) {
            Producer producer = new Producer();
            taken.producers.put(in.readUTF(), producer);
            producer.unheard = !old && in.readBoolean();
            int count = in.readInt();
            for (int e = 0; e < count; e++) {
                producer.epochs.put(in.readLong(), NumberRanges.read(in, old));
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
        return !find(stamp.substring(0, slash + 1)) || lastRanges.add(number);
    }

    /** Looks up where the numbers of a series are noted; false when it is none of ours. */
    private boolean find(String series) {
        int slash = series.length() - 1;
        int before = series.lastIndexOf('/', slash - 1);
        long epoch = Stamp.digits(series, before + 1, slash);
        if (before <= 0 || before > LONGEST_NAME || epoch < 0) {
            return false;
        }
        noteHeard();
        lastProducer = producerOf(series.substring(0, before));
        lastRanges = rangesOf(lastProducer, epoch);
        lastPrefix = series;
        return true;
    }

    /** Something new came from the last producer: it is known on this link. */
    private void noteHeard() {
        if (!lastPrefix.isEmpty() && !lastRanges.isAway()) {
            lastProducer.unheard = false;
        }
    }

    private Producer producerOf(String name) {
        Producer producer = producers.get(name);
        if (producer == null) {
            if (producers.size() == MOST_PRODUCERS) {
                Iterator<Producer> longestSilent = producers.values().iterator();
                lost += missing(longestSilent.next());
                longestSilent.remove();
            }
            producer = new Producer();
            producers.put(name, producer);
        }
        return producer;
    }

    private NumberRanges rangesOf(Producer producer, long epoch) {
        NumberRanges ranges = producer.epochs.get(epoch);
        if (ranges == null) {
            ranges = new NumberRanges();
            if (!producer.unheard && producer.epochs.keySet().stream().allMatch(e -> e < epoch)) {
                ranges.startAtZero();
            }
            makeRoom(producer);
            producer.epochs.put(epoch, ranges);
        }
        return ranges;
    }

    /** For another epoch. */
    private void makeRoom(Producer producer) {
        if (producer.epochs.size() == EPOCHS_KEPT) {
            Iterator<NumberRanges> oldest = producer.epochs.values().iterator();
            lost += oldest.next().missing();
            oldest.remove();
        }
    }

    private static long missing(Producer producer) {
        long missing = 0;
        for (NumberRanges ranges : producer.epochs.values()) {
            missing += ranges.missing();
        }
        return missing;
    }

    private static long hash(String clientId) {
        try {
            byte[] digest =
                    MessageDigest.getInstance("SHA-256")
                            .digest(clientId.getBytes(StandardCharsets.UTF_8));
            return ByteBuffer.wrap(digest).getLong() | 1; // never 0
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e); // every Java has it
        }
    }

    private void appendNumbers(StringBuilder json, boolean missing) {
        String producerComma = "";
        for (Map.Entry<String, Producer> producer : producers.entrySet()) {
            json.append(producerComma).append(Json.quoted(producer.getKey())).append(":{");
            String epochComma = "";
            for (Map.Entry<Long, NumberRanges> epoch : producer.getValue().epochs.entrySet()) {
                NumberRanges ranges = epoch.getValue();
                json.append(epochComma).append('"').append(epoch.getKey()).append("\":");
                json.append(missing ? ranges.missing() : ranges.contiguous());
                epochComma = ",";
            }
            json.append('}');
            producerComma = ",";
        }
    }

    /** Ranges above those without holes, if there are any; of the producers last heard, at most. */
    private void appendAbove(StringBuilder json) {
        int left = producers.values().stream().mapToInt(TakenNumbers::rangesAbove).sum();
        if (left == 0) {
            return;
        }
        json.append(",\"above\":{");
        String comma = "";
        for (Map.Entry<String, Producer> producer : producers.entrySet()) {
            int here = rangesAbove(producer.getValue());
            if (here > 0 && left <= MOST_RANGES_SAID) {
                json.append(comma).append(Json.quoted(producer.getKey())).append(":{");
                appendAbove(json, producer.getValue());
                json.append('}');
                comma = ",";
            }
            left -= here;
        }
        json.append('}');
    }

    private static void appendAbove(StringBuilder json, Producer producer) {
        String epochComma = "";
        for (Map.Entry<Long, NumberRanges> epoch : producer.epochs.entrySet()) {
            if (epoch.getValue().rangesAbove() > 0) {
                json.append(epochComma).append('"').append(epoch.getKey()).append("\":[");
                String comma = "";
                for (HandOver.Range range : epoch.getValue().above()) {
                    json.append(comma).append('[').append(range.first());
                    json.append(',').append(range.last()).append(']');
                    comma = ",";
                }
                json.append(']');
                epochComma = ",";
            }
        }
    }

    private static int rangesAbove(Producer producer) {
        return producer.epochs.values().stream().mapToInt(NumberRanges::rangesAbove).sum();
    }
}
