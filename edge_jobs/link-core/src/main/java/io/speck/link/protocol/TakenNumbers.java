package io.speck.link.protocol;

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
 * Which numbers a reader has taken from each producer. Part of the split's state, so it survives a
 * change of the link. Not thread-safe.
 *
 * <p>A reader that meets a producer for the first time, or on another link than before, may have
 * come late: numbers below the first one it sees are not counted as missing then (they are still
 * taken when they come). In every later epoch of that producer numbering is known to begin at 1.
 *
 * <p>Anybody may publish to a topic, so all is bounded: past {@value #MAX_PRODUCERS} producers the
 * one that was silent for longest is forgotten.
 */
public final class TakenNumbers {
    static final int MAX_PRODUCERS = 1000;
    static final int MAX_NAME_LENGTH = 200;

    private final LinkedHashMap<String, ProducerNumbers> producers = // the last one heard is last
            new LinkedHashMap<>(16, 0.75f, true);
    private long messages;
    private long lost; // holes of epochs and producers that are not kept any more
    private long link; // hash of the link last read; 0: none

    // the stamp before the number, as last seen, and what it led to: saves two look-ups a message
    private String lastPrefix = "";
    private ProducerNumbers lastProducer;
    private NumberRanges lastRanges;

    /**
     * Names the link that is read from now on; must be called before reading. If it is another one
     * than before, nothing is known about what went over it meanwhile. The state keeps no more than
     * a hash of its name.
     */
    public void useLink(String clientId) {
        long now = hash(clientId);
        if (link != 0 && link != now) {
            producers.values().forEach(ProducerNumbers::leaveLink);
            lastPrefix = "";
        }
        link = now;
    }

    /** Whether it is the link of that client id that was read last. */
    public boolean isOf(String clientId) {
        return link == hash(clientId);
    }

    /**
     * Adds what the previous reader of the link has taken; must be called after {@link #useLink},
     * at each start. Called again, also after more was taken, it changes nothing.
     *
     * <p>Numbers that were missing here are lost when they are in it: they went over a former link.
     */
    public void takeOver(HandOver handOver) {
        markLastHeard();
        lastPrefix = ""; // what it led to may be dropped
        Map<String, Long> last = new HashMap<>(); // epoch taken over, by producer
        for (HandOver.Entry entry : handOver.entries()) {
            ProducerNumbers producer = findOrAddProducer(entry.producer());
            producer.markHeard();
            ProducerNumbers.Place place =
                    producer.findOrInsert(entry.epoch(), last.get(entry.producer()));
            if (place != null) {
                lost += place.dropped();
                last.put(entry.producer(), entry.epoch());
                long missingBefore = place.ranges().missing();
                place.ranges().takeOver(entry.upTo(), entry.above());
                lost += Math.max(0, missingBefore - place.ranges().missing());
            }
        }
    }

    /**
     * Takes a message of one record.
     *
     * @param stamp its {@code <producer>/<epoch>/<number>}; null or malformed for a foreign one
     * @return false when it is a repeat
     */
    public boolean take(String stamp) {
        boolean isNew = stamp == null || takeStamped(stamp);
        if (isNew) {
            messages++;
        }
        return isNew;
    }

    /**
     * Takes one of the records of a batch.
     *
     * @param prefix {@code <producer>/<epoch>/}, as {@link Stamp#parseBatch} returns it
     * @return false when it is a repeat
     */
    public boolean take(String prefix, long number) {
        boolean ours = prefix.equals(lastPrefix) || findRanges(prefix);
        boolean isNew = !ours || lastRanges.add(number);
        if (isNew) {
            messages++;
        }
        return isNew;
    }

    /** Returns how many messages were taken, foreign ones included, repeats not. */
    public long messages() {
        return messages;
    }

    /** Counts the holes of all producers and epochs, also of those that are not kept any more. */
    public long missing() {
        return lost + producers.values().stream().mapToLong(ProducerNumbers::missing).sum();
    }

    /** Returns the holes of what is not kept any more: nothing that comes can fill them. */
    public long lost() {
        return lost;
    }

    public TakenNumbers copy() {
        markLastHeard();
        TakenNumbers copy = new TakenNumbers();
        copy.messages = messages;
        copy.lost = lost;
        copy.link = link;
        producers.forEach((name, numbers) -> copy.producers.put(name, numbers.copy()));
        return copy;
    }

    /**
     * Writes the text of the retained message on {@code speck/taken/<client id>}. A hole is missing
     * as long as its epoch is kept, and lost when it is not.
     *
     * @param dropped how many messages found no room in the reader, under at_most_once
     * @param mark the last one that came through the session: all before it is taken; null: none
     */
    public String toJson(long atMs, long checkpoint, long dropped, String mark) {
        return new TakenNumbersJson(producers)
                .write(atMs, checkpoint, lost, dropped, messages, mark);
    }

    /**
     * Returns the holes that there are, by producer and epoch, as JSON; those of the producers that
     * were silent for longest are left out where it would have more than {@code maxBytes}.
     */
    public String missingToJson(int maxBytes) {
        return new TakenNumbersJson(producers).writeMissing(maxBytes);
    }

    public void write(DataOutput out) throws IOException {
        markLastHeard();
        out.writeLong(messages);
        out.writeLong(lost);
        out.writeLong(link);
        out.writeInt(producers.size());
        for (Map.Entry<String, ProducerNumbers> producer : producers.entrySet()) {
            out.writeUTF(producer.getKey());
            producer.getValue().write(out);
        }
    }

    /** Reads what {@link #write} wrote. */
    public static TakenNumbers read(DataInput in) throws IOException {
        TakenNumbers taken = new TakenNumbers();
        taken.messages = in.readLong();
        taken.lost = in.readLong();
        taken.link = in.readLong();
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            taken.producers.put(in.readUTF(), ProducerNumbers.read(in));
        }
        return taken;
    }

    private boolean takeStamped(String stamp) {
        int slash = stamp.lastIndexOf('/');
        long number = Stamp.parseDigits(stamp, slash + 1, stamp.length());
        if (slash <= 0 || number < 1) {
            return true; // not ours after all
        }
        if (slash + 1 == lastPrefix.length() && stamp.startsWith(lastPrefix)) {
            return lastRanges.add(number);
        }
        return !findRanges(stamp.substring(0, slash + 1)) || lastRanges.add(number);
    }

    /** Looks up where the numbers of a prefix are kept; false when it is none of ours. */
    private boolean findRanges(String prefix) {
        int slash = prefix.length() - 1;
        int nameEnd = prefix.lastIndexOf('/', slash - 1);
        long epoch = Stamp.parseDigits(prefix, nameEnd + 1, slash);
        if (nameEnd <= 0 || nameEnd > MAX_NAME_LENGTH || epoch < 0) {
            return false;
        }
        markLastHeard();
        lastProducer = findOrAddProducer(prefix.substring(0, nameEnd));
        ProducerNumbers.Place place = lastProducer.findOrAdd(epoch);
        lost += place.dropped();
        lastRanges = place.ranges();
        lastPrefix = prefix;
        return true;
    }

    /** If something new came from the last producer, it is known on this link. */
    private void markLastHeard() {
        if (!lastPrefix.isEmpty() && !lastRanges.isAway()) {
            lastProducer.markHeard();
        }
    }

    private ProducerNumbers findOrAddProducer(String name) {
        ProducerNumbers producer = producers.get(name);
        if (producer == null) {
            if (producers.size() == MAX_PRODUCERS) {
                Iterator<ProducerNumbers> longestSilent = producers.values().iterator();
                lost += longestSilent.next().missing();
                longestSilent.remove();
            }
            producer = new ProducerNumbers();
            producers.put(name, producer);
        }
        return producer;
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
}
