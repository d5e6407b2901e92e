package io.speck.link.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.protocol.ReaderState;
import io.speck.link.testing.TestWriter.Checkpoint;
import io.speck.link.transport.Delivery;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What every transport does on its real broker: both ends of a link, without an engine. */
public abstract class LinkContract {
    private static final AtomicInteger LINKS = new AtomicInteger();

    private final String topic = "link" + LINKS.incrementAndGet();

    /** Returns the running broker of the tests. */
    protected abstract TestBroker broker() throws Exception;

    private TestWriter writer(Delivery delivery, Checkpoint from) throws Exception {
        return new TestWriter(broker(), topic, delivery, from);
    }

    private TestReader reader(ReaderState from) throws Exception {
        return new TestReader(broker(), topic, from);
    }

    private void reserve() throws Exception {
        broker().reserve(TestReader.CLIENT_ID, topic);
    }

    private static List<String> records(int from, int to) {
        return IntStream.rangeClosed(from, to).mapToObj(i -> "r" + i).toList();
    }

    @Test
    void recordsComeOnceAndInOrder() throws Exception {
        reserve();
        try (TestWriter writer = writer(Delivery.AT_LEAST_ONCE, Checkpoint.NONE)) {
            writer.write(records(1, 1000)).checkpoint();
            try (TestReader reader = reader(ReaderState.empty())) {
                assertEquals(records(1, 1000), reader.pollUntil(1000).records);
                assertEquals(0L, reader.metrics.read("messagesMissing"), "and none is missing");
            }
        }
    }

    /** Nobody reads yet: what was sent since the place was made waits. */
    @Test
    void whatIsSentAfterTheReservationWaitsForItsReader() throws Exception {
        broker().reserve("another", topic); // a link that has a reader takes records
        try (TestWriter writer = writer(Delivery.AT_LEAST_ONCE, Checkpoint.NONE)) {
            writer.write(records(1, 3)).checkpoint();
            reserve();
            writer.write(records(4, 6)).checkpoint();
        }
        try (TestReader reader = reader(ReaderState.empty())) {
            assertEquals(records(4, 6), reader.pollUntil(3).records);
        }
    }

    @Test
    void whatACompleteCheckpointCoversDoesNotComeAgainAndTheRestDoes() throws Exception {
        reserve();
        try (TestWriter writer = writer(Delivery.AT_LEAST_ONCE, Checkpoint.NONE)) {
            writer.write(records(1, 10)).checkpoint();
            TestReader first = reader(ReaderState.empty());
            first.pollUntil(10).checkpoint();
            first.complete();
            writer.write(records(11, 20)).checkpoint();
            first.pollUntil(20);
            TestBroker broker = broker();
            Wait.until(
                    "it is said to be taken",
                    () -> broker.taken(TestReader.CLIENT_ID, topic) == 10);
            first.close();
            try (TestReader second = reader(ReaderState.empty())) {
                assertEquals(records(11, 20), second.pollUntil(10).records);
            }
        }
    }

    @Test
    void aReaderDropsWhatItsStateHas() throws Exception {
        reserve();
        try (TestWriter writer = writer(Delivery.AT_LEAST_ONCE, Checkpoint.NONE)) {
            writer.write(records(1, 10)).checkpoint();
            TestReader first = reader(ReaderState.empty());
            ReaderState state = first.pollUntil(10).checkpoint(); // never acknowledged
            first.close();
            writer.write(records(11, 12)).checkpoint();
            try (TestReader second = reader(state)) {
                assertEquals(records(11, 12), second.pollUntil(2).records);
            }
        }
    }

    @Test
    void aCommittableThatIsPublishedTwiceComesOnce() throws Exception {
        reserve();
        Checkpoint first;
        try (TestWriter writer = writer(Delivery.EXACTLY_ONCE, Checkpoint.NONE)) {
            first = writer.write(records(1, 500)).checkpoint();
            writer.complete(first);
        } // falls before it knows that this is so
        try (TestWriter again = writer(Delivery.EXACTLY_ONCE, first);
                TestReader reader = reader(ReaderState.empty())) {
            again.complete(again.write(records(501, 600)).checkpoint());
            assertEquals(records(1, 600), reader.pollUntil(600).records);
            assertEquals(0L, reader.metrics.read("messagesMissing"), "and none is missing");
        }
    }

    @Test
    void nothingOfACheckpointIsPublishedBeforeItIsComplete() throws Exception {
        reserve();
        try (TestWriter writer = writer(Delivery.EXACTLY_ONCE, Checkpoint.NONE);
                TestReader reader = reader(ReaderState.empty())) {
            Checkpoint open = writer.write(records(1, 5)).checkpoint();
            broker().publish(topic, "outside");
            assertEquals(List.of("outside"), reader.pollUntil(1).records);
            writer.complete(open);
            reader.pollUntil(6);
            assertEquals(records(1, 5), reader.records.subList(1, 6));
        }
    }

    @Test
    void aRecordThatIsTooLargeIsLeftOutAndTheRestGoesOn() throws Exception {
        reserve();
        try (TestWriter writer = writer(Delivery.AT_LEAST_ONCE, Checkpoint.NONE);
                TestReader reader = reader(ReaderState.empty())) {
            writer.write(List.of("r1", "x".repeat(600_000), "r2")).checkpoint();
            assertEquals(records(1, 2), reader.pollUntil(2).records);
            assertEquals(1, writer.metrics.counter("recordsUndeliverable").getCount());
            assertEquals(0L, reader.metrics.read("messagesMissing"), "it got no number");
        }
    }

    @Test
    void aBrokerThatStandsStillIsWaitedFor() throws Exception {
        reserve();
        try (TestWriter writer = writer(Delivery.AT_LEAST_ONCE, Checkpoint.NONE);
                TestReader reader = reader(ReaderState.empty())) {
            writer.write(records(1, 10)).checkpoint();
            broker().freeze();
            AtomicInteger flushed = new AtomicInteger();
            Thread task =
                    new Thread(
                            () -> {
                                try {
                                    writer.write(records(11, 100)).checkpoint();
                                    flushed.incrementAndGet();
                                } catch (Exception e) {
                                    throw new IllegalStateException(e);
                                }
                            });
            task.start();
            Wait.until("it waits", () -> task.getState() == Thread.State.WAITING);
            assertEquals(0, flushed.get());
            broker().thaw();
            task.join(60_000);
            assertEquals(1, flushed.get());
            assertEquals(records(1, 100), reader.pollUntil(100).records);
        }
    }

    /** All that was acknowledged is there, or is sent again. */
    @Test
    void aKilledBrokerLosesNothingAndRepeatsNothing() throws Exception {
        reserve();
        try (TestWriter writer = writer(Delivery.EXACTLY_ONCE, Checkpoint.NONE);
                TestReader reader = reader(ReaderState.empty())) {
            writer.complete(writer.write(records(1, 200)).checkpoint());
            broker().kill();
            broker().start();
            writer.complete(writer.write(records(201, 400)).checkpoint());
            assertEquals(records(1, 400), reader.pollUntil(400).records);
            assertEquals(0L, reader.metrics.read("messagesMissing"), "and none is missing");
        }
    }

    @Test
    void aBrokerThatIsAwayAtTheStartIsWaitedFor() throws Exception {
        reserve();
        broker().kill();
        Thread starting = new Thread(this::startBroker);
        starting.start();
        try (TestWriter writer = writer(Delivery.EXACTLY_ONCE, Checkpoint.NONE);
                TestReader reader = reader(ReaderState.empty())) {
            starting.join();
            writer.complete(writer.write(records(1, 50)).checkpoint());
            assertEquals(records(1, 50), reader.pollUntil(50).records);
        }
    }

    /** Writer, reader and broker fall in turn, at any moment, and go on from their checkpoints. */
    @Test
    @Tag("long")
    void everythingMayFall() throws Exception {
        reserve();
        Random random = new Random(7);
        Checkpoint written = Checkpoint.NONE;
        ReaderState read = ReaderState.empty();
        List<String> taken = new ArrayList<>();
        TestWriter writer = writer(Delivery.EXACTLY_ONCE, written);
        TestReader reader = reader(read);
        int next = 1;
        for (int round = 1; round <= 40; round++) {
            written = writer.write(records(next, next + 49)).checkpoint();
            next += 50;
            switch (random.nextInt(4)) {
                case 0 -> { // before its commit
                    writer.close();
                    writer = writer(Delivery.EXACTLY_ONCE, written);
                }
                case 1 -> { // after it
                    writer.complete(written);
                    writer.close();
                    writer = writer(Delivery.EXACTLY_ONCE, written);
                }
                case 2 -> {
                    writer.complete(written);
                    broker().kill();
                    broker().start();
                }
                default -> writer.complete(written);
            }
            reader.poll();
            if (random.nextBoolean()) { // what it had since its checkpoint comes again
                read = reader.checkpoint();
                taken.addAll(reader.records);
                if (random.nextBoolean()) {
                    reader.complete();
                }
                reader.close();
                reader = reader(read);
            }
        }
        int missing = next - 1 - taken.size();
        reader.pollUntil(missing);
        taken.addAll(reader.records);
        assertEquals(records(1, next - 1), taken.stream().sorted(LinkContract::byNumber).toList());
        reader.close();
        writer.close();
    }

    /** Records of a port go to its links in turn. */
    @ParameterizedTest
    @EnumSource(
            value = Delivery.class,
            names = {"AT_LEAST_ONCE", "EXACTLY_ONCE"})
    void aPortNumbersEachLinkByItself(Delivery delivery) throws Exception {
        List<String> port = List.of(topic + "p0", topic + "p1", topic + "p2");
        for (String link : port) {
            broker().reserve(TestReader.CLIENT_ID + link, link);
        }
        Checkpoint last;
        try (TestWriter writer = new TestWriter(broker(), port, delivery, Checkpoint.NONE)) {
            last = writer.write(records(1, 300)).checkpoint();
            writer.complete(last);
        }
        try (TestWriter again = new TestWriter(broker(), port, delivery, last)) {
            again.complete(again.write(records(301, 600)).checkpoint());
        }
        for (int i = 0; i < 3; i++) {
            try (TestReader reader = portReader(port.get(i))) {
                List<String> share = new ArrayList<>();
                for (int number = i + 1; number <= 600; number += 3) {
                    share.add("r" + number);
                }
                assertEquals(share, reader.pollUntil(200).records);
                assertEquals(0L, reader.metrics.read("messagesMissing"), "and none is missing");
            }
        }
    }

    /** What a checkpoint has left for a link goes there, also when the port has it no more. */
    @Test
    void aPortMayChange() throws Exception {
        String left = topic + "left";
        String kept = topic + "kept";
        String added = topic + "added";
        for (String link : List.of(left, kept, added)) {
            broker().reserve(TestReader.CLIENT_ID + link, link);
        }
        List<String> before = List.of(left, kept);
        List<String> after = List.of(kept, added);
        Checkpoint open;
        try (TestWriter writer =
                new TestWriter(broker(), before, Delivery.EXACTLY_ONCE, Checkpoint.NONE)) {
            open = writer.write(records(1, 4)).checkpoint();
        } // falls before it is complete
        try (TestWriter writer = new TestWriter(broker(), after, Delivery.EXACTLY_ONCE, open)) {
            writer.complete(writer.write(records(5, 8)).checkpoint());
        }
        try (TestReader ofLeft = portReader(left);
                TestReader ofKept = portReader(kept);
                TestReader ofAdded = portReader(added)) {
            assertEquals(List.of("r1", "r3"), ofLeft.pollUntil(2).records);
            assertEquals(List.of("r2", "r4", "r5", "r7"), ofKept.pollUntil(4).records);
            assertEquals(List.of("r6", "r8"), ofAdded.pollUntil(2).records);
            assertEquals(0L, ofKept.metrics.read("messagesMissing"), "its numbers go on");
        }
    }

    private TestReader portReader(String link) throws Exception {
        return new TestReader(broker(), link, TestReader.CLIENT_ID + link, ReaderState.empty());
    }

    @Test
    void noThreadIsLeftAfterTheEnds() throws Exception {
        reserve();
        try (TestWriter writer = writer(Delivery.AT_LEAST_ONCE, Checkpoint.NONE);
                TestReader reader = reader(ReaderState.empty())) {
            writer.write(records(1, 1)).checkpoint();
            reader.pollUntil(1);
            assertFalse(ourThreads().isEmpty());
        }
        Wait.until("no thread is left", () -> ourThreads().isEmpty(), LinkContract::ourThreads);
        assertTrue(ourThreads().isEmpty());
    }

    private static List<String> ourThreads() {
        return Thread.getAllStackTraces().keySet().stream()
                .map(Thread::getName)
                .filter(name -> name.startsWith("speck-"))
                .toList();
    }

    private void startBroker() {
        try {
            broker().start();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static int byNumber(String one, String other) {
        return Integer.compare(
                Integer.parseInt(one.substring(1)), Integer.parseInt(other.substring(1)));
    }
}
