package io.speck.flink.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import com.hivemq.client.mqtt.mqtt5.message.publish.puback.Mqtt5PubAckReasonCode;
import io.speck.link.protocol.HandOver;
import io.speck.link.protocol.Message;
import io.speck.link.protocol.Until;
import io.speck.link.source.LinkReader;
import io.speck.link.testing.Wait;
import io.speck.link.transport.Delivery;
import io.speck.link.transport.LinkConfig;
import io.speck.link.transport.Transports;
import io.speck.mqtt.testing.CollectingOutput;
import io.speck.mqtt.testing.CountingProxy;
import io.speck.mqtt.testing.JobTest;
import io.speck.mqtt.testing.Mosquitto;
import io.speck.mqtt.testing.Mqtt311Proxy;
import io.speck.mqtt.testing.ShortReadyTimeout;
import io.speck.mqtt.testing.TestClient;
import io.speck.mqtt.testing.TestRecords;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

class LinkSourceReaderTest {
    @Test
    void forgetsCheckpointsThatFail() {
        LinkConfig nowhere =
                new LinkConfig(
                        Transports.parse("tcp://127.0.0.1:1"),
                        "t",
                        "c",
                        Delivery.AT_LEAST_ONCE,
                        10);
        LinkSourceReader reader =
                create(nowhere, Until.EVER);
        reader.addSplits(List.of(LinkSplit.empty()));
        for (int checkpoint = 1; checkpoint <= 100; checkpoint++) {
            reader.snapshotState(checkpoint);
            if (checkpoint % 10 != 0) {
                reader.notifyCheckpointAborted(checkpoint);
            }
        }
        assertEquals(10, reader.pendingCheckpoints());
        reader.notifyCheckpointComplete(50);
        assertEquals(5, reader.pendingCheckpoints());
        reader.close();
    }

    private static final String MARKS = "speck/marks/reader";
    private static final int WINDOW = 10;
    private static final long MAX_INBOX_BYTES = 16 << 20;
    private static final Pattern SAID =
            Pattern.compile(
                    ".*\"checkpoint\":(\\d+),.*\"messages\":(\\d+)(?:,\"mark\":\"(.*)\")?}");

    /** A reader of {@code in}, what it has given, and what it says. */
    private static final class Reading implements AutoCloseable {
        final Mosquitto broker;
        final TestClient client;
        final TestClient books;
        final CollectingOutput taken = new CollectingOutput();
        LinkSourceReader reader;

        Reading(Path folder) throws Exception {
            broker = Mosquitto.started(folder);
            client = new TestClient(broker);
            books = new TestClient(broker).listen("speck/taken/reader");
        }

        Reading start() {
            return start(broker.address(), Delivery.AT_LEAST_ONCE);
        }

        Reading start(String address, Delivery delivery) {
            LinkConfig link =
                    new LinkConfig(Transports.parse(address), "in", "reader", delivery, WINDOW);
            reader =
                    create(link, Until.EVER);
            reader.addSplits(List.of(LinkSplit.empty()));
            reader.start();
            return this;
        }

        void pollUntil(int count) throws Exception {
            taken.pollUntil(reader, count);
        }

        /** Also what is no record. */
        void pollAll() throws Exception {
            Wait.until("something has come", () -> reader.isAvailable().isDone());
            Wait.until(
                    "all is taken",
                    () -> {
                        reader.pollNext(taken);
                        return !reader.isAvailable().isDone();
                    });
        }

        /** Whether a session takes it. */
        boolean mark(String text) throws Exception {
            Object published = client.publish(MARKS, text, null).get();
            return ((Mqtt5PublishResult.Mqtt5Qos1Result) published).getPubAck().getReasonCode()
                    == Mqtt5PubAckReasonCode.SUCCESS;
        }

        void complete(long checkpoint) {
            reader.snapshotState(checkpoint);
            reader.notifyCheckpointComplete(checkpoint);
        }

        /** Of each announcement the checkpoint, the messages and the mark. */
        List<String> said() {
            return books.payloads().stream()
                    .map(SAID::matcher)
                    .filter(Matcher::matches)
                    .map(said -> said.group(1) + " " + said.group(2) + " " + said.group(3))
                    .toList();
        }

        @Override
        public void close() throws Exception {
            if (reader != null) {
                reader.close();
            }
            client.close();
            books.close();
            broker.close();
        }
    }

    @Test
    void saysAMarkWithTheCheckpointThatCoversWhatCameBefore(@TempDir Path folder)
            throws Exception {
        try (Reading here = new Reading(folder).start()) {
            here.client.publishNumbered("in", 1, 1, 15); // more than it may have at a time
            assertTrue(here.mark("a1"));
            here.client.publishNumbered("in", 1, 16, 16);
            here.pollUntil(WINDOW);
            here.complete(1);
            here.pollUntil(16);
            here.reader.snapshotState(2);
            here.books.await(1);
            here.reader.notifyCheckpointComplete(2);
            here.books.await(2);
            assertEquals(List.of("1 10 null", "2 16 a1"), here.said());
            assertEquals(TestRecords.records(1, 16), here.taken.records);
        }
    }

    @Test
    void saysAMarkThatComesAloneOnceAndTheNextOne(@TempDir Path folder) throws Exception {
        try (Reading here = new Reading(folder).start()) {
            here.complete(1);
            here.mark("a1");
            here.pollAll();
            here.complete(2);
            here.complete(3);
            here.mark("b2");
            here.pollAll();
            here.complete(4);
            here.books.await(3);
            assertEquals(List.of("1 0 null", "2 0 a1", "4 0 b2"), here.said());
            assertEquals(List.of(), here.taken.records);
        }
    }

    /** Else its place in the window would be gone for ever. */
    @Test
    void acknowledgesMarksAlsoThoseThatAreNone(@TempDir Path folder) throws Exception {
        try (Reading here = new Reading(folder).start()) {
            List<String> none = List.of("", "A1", "x", "\"}", "a1 ", "0".repeat(33), "é");
            for (int i = 0; i < 2 * WINDOW; i++) {
                here.mark(none.get(i % none.size()));
            }
            here.mark("a1");
            here.client.publishNumbered("in", 1, 1, 1);
            int checkpoint = 0;
            while (here.taken.records.isEmpty()) {
                here.pollAll();
                here.complete(++checkpoint);
            }
            here.complete(++checkpoint);
            Wait.until("it is said", () -> here.books.last().endsWith("\"mark\":\"a1\"}"));
            assertEquals(List.of("null", "a1"), marks(here));
            assertEquals(TestRecords.records(1, 1), here.taken.records);
        }
    }

    private static List<String> marks(Reading here) {
        return here.said().stream().map(said -> said.split(" ")[2]).distinct().toList();
    }

    @Test
    void aMarkWaitsInTheSessionForAReaderThatIsAway(@TempDir Path folder) throws Exception {
        try (Reading here = new Reading(folder)) {
            JobTest.reserve(here.broker, "reader", "in");
            assertFalse(here.mark("a0"), "it was never there");
            here.start().reader.close();
            here.client.publishNumbered("in", 1, 1, 3);
            assertTrue(here.mark("a1"));
            here.client.publishNumbered("in", 1, 4, 4);
            here.start();
            here.pollUntil(4);
            here.complete(1);
            here.books.await(1);
            assertEquals(List.of("1 4 a1"), here.said());
        }
    }

    @Test
    void aMarkThatNoCheckpointCoversComesAgain(@TempDir Path folder) throws Exception {
        try (Reading here = new Reading(folder).start()) {
            here.client.publishNumbered("in", 1, 1, 1);
            here.mark("a1");
            here.client.publishNumbered("in", 1, 2, 2);
            here.pollUntil(2);
            here.reader.snapshotState(1);
            here.reader.close(); // it fails: what it has taken is forgotten
            here.taken.records.clear();
            here.start();
            here.complete(1);
            here.pollUntil(2);
            here.complete(2);
            here.books.await(2);
            assertEquals(List.of("1 0 null", "2 2 a1"), here.said());
        }
    }

    /** Its messages are dropped when it has too many; a mark never is. */
    @Test
    void marksReachAReaderThatIsPromisedNothing(@TempDir Path folder) throws Exception {
        try (Reading here = new Reading(folder)) {
            here.start(here.broker.address(), Delivery.AT_MOST_ONCE);
            String large = "x".repeat(1_000_000);
            int sent = (int) (MAX_INBOX_BYTES / large.length()) + 5;
            for (int i = 1; i <= sent; i++) {
                here.client.publish("in", large, "p/1/" + i).join();
            }
            here.mark("a1");
            Thread.sleep(500); // more comes than it takes
            AtomicInteger checkpoint = new AtomicInteger();
            Wait.until(
                    "it is said",
                    () -> {
                        here.reader.pollNext(here.taken);
                        here.complete(checkpoint.incrementAndGet());
                        return here.books.last().endsWith("\"mark\":\"a1\"}");
                    });
            assertTrue(here.taken.records.size() < sent, "some were dropped");
        }
    }

    @Test
    void marksComeByTheOldProtocolToo(@TempDir Path folder) throws Exception {
        try (Reading here = new Reading(folder);
                Mqtt311Proxy old = new Mqtt311Proxy(here.broker)) {
            here.start(old.address(), Delivery.AT_LEAST_ONCE);
            here.client.publishNumbered("in", 1, 1, 1);
            here.mark("a1");
            here.client.publishNumbered("in", 1, 2, 2);
            here.pollUntil(2);
            here.complete(1);
            here.books.await(1);
            assertEquals(List.of("1 2 a1"), here.said());
            assertEquals(TestRecords.records(1, 2), here.taken.records);
        }
    }

    @Test
    void aReaderThatMayHaveNoMarksGoesOn(@TempDir Path folder) throws Exception {
        try (Reading here = new Reading(folder);
                CountingProxy tap = new CountingProxy(here.broker)) {
            tap.refuse(1);
            here.start(tap.address(), Delivery.AT_LEAST_ONCE);
            here.client.publishNumbered("in", 1, 1, 1);
            here.pollUntil(1);
            here.complete(1);
            here.books.await(1);
            assertEquals(List.of("1 1 null"), here.said());
        }
    }

    @ExtendWith(ShortReadyTimeout.class)
    @Test
    void aReaderThatMayNotReadItsLinkSaysNothing(@TempDir Path folder) throws Exception {
        try (Reading here = new Reading(folder);
                CountingProxy tap = new CountingProxy(here.broker)) {
            tap.refuse(0);
            here.start(tap.address(), Delivery.AT_LEAST_ONCE); // in vain, for 10 s
            here.complete(1);
            tap.refuse(1);
            Wait.until(
                    "it is let in",
                    () -> {
                        here.complete(2);
                        return !here.said().isEmpty();
                    });
            assertEquals("2 0 null", here.said().get(0));
        }
    }

    /** A few messages may carry more than an exactly-once sink could keep until the checkpoint. */
    @Test
    void takesNoMoreThanItMayHaveInHandUntilACheckpointIsComplete(@TempDir Path folder)
            throws Exception {
        try (Mosquitto broker = Mosquitto.started(folder);
                TestClient client = new TestClient(broker)) {
            LinkConfig link =
                    new LinkConfig(
                            Transports.parse(broker.address()),
                            "in",
                            "reader",
                            Delivery.EXACTLY_ONCE,
                            10);
            int most = 250 * ("r100".length() + Message.OVERHEAD_BYTES);
            LinkSourceReader reader =
                    new LinkSourceReader(
                            metrics ->
                                    new LinkReader(
                                            link, HandOver.NONE, Until.EVER, metrics, most),
                            UnregisteredMetricsGroup.createSourceReaderMetricGroup());
            reader.addSplits(List.of(LinkSplit.empty()));
            reader.start();
            var taken = new CollectingOutput();
            for (int from = 100; from < 900; from += 200) {
                Message together = TestRecords.batchOf(true, from, from + 199);
                client.publishTogether("in", 1, from, together).join();
            }
            taken.pollUntil(reader, 250);
            assertEquals(InputStatus.NOTHING_AVAILABLE, reader.pollNext(taken));
            reader.snapshotState(1);
            assertEquals(InputStatus.NOTHING_AVAILABLE, reader.pollNext(taken));
            CompletableFuture<Void> more = reader.isAvailable();
            assertFalse(more.isDone(), "it does not ask again and again");
            reader.notifyCheckpointAborted(1);
            reader.snapshotState(2);
            assertEquals(250, taken.records.size());
            reader.notifyCheckpointComplete(2);
            assertTrue(more.isDone());
            taken.pollUntil(reader, 500);
            reader.snapshotState(3);
            reader.notifyCheckpointComplete(3);
            taken.pollUntil(reader, 750);
            assertEquals(TestRecords.records(100, 849), taken.records);
            reader.close();
        }
    }

    /** A message is acknowledged when all its records are in a complete checkpoint; not before. */
    @Test
    void aCheckpointAmidstAMessageKeepsItsBeginningAndAsksForTheRest(@TempDir Path folder)
            throws Exception {
        try (Mosquitto broker = Mosquitto.started(folder);
                TestClient client = new TestClient(broker)) {
        LinkConfig link =
                new LinkConfig(
                        Transports.parse(broker.address()),
                        "in",
                        "reader",
                        Delivery.AT_LEAST_ONCE,
                        10);
        CollectingOutput taken = new CollectingOutput();
        LinkSourceReader first = reading(link, LinkSplit.empty());
        client.publishTogether("in", 1, 1, TestRecords.batchOf(true, 1, 100)).join();
        taken.pollUntil(first, 1);
        assertTrue(taken.records.size() < 100, "the task looks at its mailbox in between");
        LinkSplit amidst = completed(first, 1);

        LinkSourceReader second = reading(link, amidst);
        taken.pollUntil(second, 100);
        assertEquals(TestRecords.records(1, 100), taken.records);
        LinkSplit behind = completed(second, 1);

        LinkSourceReader third = reading(link, behind);
        client.publish("in", "next", "p/1/101").join();
        taken.pollUntil(third, 101);
        assertEquals("next", taken.records.get(100), "what is acknowledged does not come again");
        third.close();
        }
    }

    /** What is left comes again at the next start; what was taken behind it does not. */
    @Test
    void readsNoFurtherThanTheNumbersThatItIsToReadUntil(@TempDir Path folder) throws Exception {
        try (Mosquitto broker = Mosquitto.started(folder);
                TestClient client = new TestClient(broker)) {
            LinkConfig link =
                    new LinkConfig(
                            Transports.parse(broker.address()),
                            "in",
                            "reader",
                            Delivery.AT_LEAST_ONCE,
                            100);
            CollectingOutput taken = new CollectingOutput();
            LinkSourceReader first = reading(link, LinkSplit.empty(), "p/1/2/5-5;p/2/2");
            client.publish("in", "p1", "p/1/1").join();
            client.publish("in", "plain", null).join();
            client.publish("in", "p2", "p/1/2").join();
            client.publish("in", "p3", "p/1/3").join();
            client.publish("in", "late", null).join();
            client.publish("in", "p5", "p/1/5").join();
            client.publishTogether("in", 2, 1, TestRecords.batchOf(true, 1, 4)).join();
            taken.pollUntil(first, 6);
            assertEquals(InputStatus.NOTHING_AVAILABLE, first.pollNext(taken));
            assertEquals(List.of("p1", "plain", "p2", "p5", "r1", "r2"), taken.records);
            LinkSplit split = completed(first, 1);

            LinkSourceReader second = reading(link, split, "");
            taken.pollUntil(second, 10);
            assertEquals(List.of("p3", "late", "r3", "r4"), taken.records.subList(6, 10));
            second.close();
        }
    }

    private static LinkSourceReader create(LinkConfig link, Until until) {
        return new LinkSourceReader(
                metrics -> new LinkReader(link, HandOver.NONE, until, metrics),
                UnregisteredMetricsGroup.createSourceReaderMetricGroup());
    }

    private static LinkSourceReader reading(LinkConfig link, LinkSplit split) {
        return reading(link, split, "");
    }

    private static LinkSourceReader reading(LinkConfig link, LinkSplit split, String until) {
        LinkSourceReader reader =
                create(link, Until.parse(until));
        reader.addSplits(List.of(split));
        reader.start();
        return reader;
    }

    private static LinkSplit completed(LinkSourceReader reader, long checkpoint) {
        LinkSplit split = reader.snapshotState(checkpoint).get(0);
        reader.notifyCheckpointComplete(checkpoint);
        reader.close();
        return split;
    }
}
