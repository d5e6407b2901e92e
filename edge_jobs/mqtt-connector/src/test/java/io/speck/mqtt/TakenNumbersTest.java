package io.speck.mqtt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import org.junit.jupiter.api.Test;

class TakenNumbersTest {
    private final TakenNumbers taken = new TakenNumbers();

    @Test
    void dropsRepeatsOfEachProducerAndEpochByItself() {
        assertTrue(taken.take("a/1/1"));
        assertTrue(taken.take("a/2/1"));
        assertTrue(taken.take("b/1/1"));
        assertFalse(taken.take("a/1/1"));
        assertFalse(taken.take("b/1/1"));
        assertEquals(3, taken.messages());
    }

    @Test
    void foreignAndMalformedStampsPass() {
        for (String stamp : new String[] {null, "", "x", "a/b", "a/1/", "a/1/-1", "a/1/0", "/1/1"}) {
            assertTrue(taken.take(stamp), stamp);
            assertTrue(taken.take(stamp), stamp);
        }
        assertEquals("{\"v\":1,\"at\":5,\"checkpoint\":7,\"taken\":{},\"missing\":{},\"lost\":0,\"messages\":16}",
                taken.toJson(5, 7));
    }

    @Test
    void saysWhatItHasAndWhatItMisses() {
        taken.take("a/1/1");
        taken.take("a/1/2");
        taken.take("a/1/5");
        taken.take("a/9/2"); // a later epoch of a known producer begins at 1
        assertEquals(
                "{\"v\":1,\"at\":1,\"checkpoint\":2,\"taken\":{\"a\":{\"1\":2,\"9\":0}},"
                        + "\"missing\":{\"a\":{\"1\":2,\"9\":1}},\"lost\":0,\"messages\":4}",
                taken.toJson(1, 2));
        assertEquals(3, taken.missing());
    }

    @Test
    void keepsTheLastFourEpochs() {
        for (int epoch = 1; epoch <= 6; epoch++) {
            taken.take("a/" + epoch + "/1");
        }
        assertTrue(taken.toJson(0, 0).contains("{\"a\":{\"3\":1,\"4\":1,\"5\":1,\"6\":1}}"));
    }

    @Test
    void holesOfForgottenEpochsStayCounted() throws Exception {
        taken.take("a/1/1");
        taken.take("a/1/4");
        for (int epoch = 2; epoch <= 6; epoch++) {
            taken.take("a/" + epoch + "/1");
        }
        assertEquals(2, taken.missing());
        assertTrue(taken.toJson(0, 0).contains("\"lost\":2,"));
        byte[] bytes = new TopicSplit.Serializer().serialize(new TopicSplit(taken, true));
        assertEquals(2, new TopicSplit.Serializer().deserialize(2, bytes).taken().missing());
    }

    /** After an outage a sink sends what was refused, or acknowledged in vain, behind newer ones. */
    @Test
    void holesAreFilledInAnyOrderAndRepeatsDropped() {
        for (int number : new int[] {1, 2, 6, 7, 8, 3, 12, 5, 4}) {
            assertTrue(taken.take("a/1/" + number));
        }
        assertEquals(3, taken.missing());
        for (int number = 1; number <= 8; number++) {
            assertFalse(taken.take("a/1/" + number));
        }
        for (int number = 9; number <= 11; number++) {
            assertTrue(taken.take("a/1/" + number));
        }
        assertEquals(0, taken.missing());
        assertEquals(12, taken.messages());
    }

    @Test
    void readsTheStateOfTheFirstVersion() throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeBoolean(true);
        out.writeLong(42); // messages
        out.writeInt(0); // producers
        TopicSplit split = new TopicSplit.Serializer().deserialize(1, bytes.toByteArray());
        assertEquals(42, split.taken().messages());
    }

    @Test
    void forgetsTheEpochMetFirstNotTheLowest() {
        for (int epoch = 16; epoch >= 11; epoch--) {
            taken.take("a/" + epoch + "/1");
            taken.take("b/1/1"); // so that nothing is remembered from the last message
            assertFalse(taken.take("a/" + epoch + "/1"), "epoch " + epoch);
        }
        assertTrue(taken.toJson(0, 0).contains("{\"14\":1,\"13\":1,\"12\":1,\"11\":1}"));
    }

    @Test
    void whatWentOverALinkThatWasLeftIsNotMissing() throws Exception {
        taken.readOver("client-on-one");
        for (int number = 1; number <= 10; number++) {
            taken.take("a/1/" + number);
        }
        TakenNumbers elsewhere = throughState(taken);
        elsewhere.readOver("client-on-two");
        elsewhere.take("b/1/1");
        TakenNumbers back = throughState(elsewhere);
        back.readOver("client-on-one");
        assertFalse(back.take("a/1/10"));
        assertTrue(back.take("a/1/50"));
        assertTrue(back.take("a/1/52"));
        assertEquals(1, back.missing());
        assertTrue(back.toJson(0, 0).contains("\"a\":{\"1\":50}"), back.toJson(0, 0));
    }

    @Test
    void anEpochThatBeganOnALinkThatWasLeftIsMetLate() throws Exception {
        taken.readOver("client-on-one");
        taken.take("a/1/1");
        TakenNumbers back = throughState(taken);
        back.readOver("client-on-two");
        back.take("a/2/31");
        assertEquals(0, back.missing());
        back.take("a/3/2");
        assertEquals(1, back.missing(), "this one began here");
    }

    @Test
    void theSameLinkIsNotLeftByARestart() throws Exception {
        taken.readOver("client-on-one");
        taken.take("a/1/1");
        TakenNumbers again = throughState(taken);
        again.readOver("client-on-one");
        again.take("a/1/4");
        again.take("a/2/3");
        assertEquals(4, again.missing());
    }

    @Test
    void strangersCannotFillTheMemory() {
        assertTrue(taken.take("x".repeat(201) + "/1/1"));
        assertTrue(taken.take("x".repeat(201) + "/1/1"), "too long a name is nobody's");
        taken.take("known/1/1");
        for (int i = 0; i < 2 * TakenNumbers.MOST_PRODUCERS; i++) {
            taken.take("p" + i + "/1/1");
            taken.take("known/1/" + (i + 2));
        }
        assertEquals(TakenNumbers.MOST_PRODUCERS, taken.toJson(0, 0).split("\\{\"1\":1").length);
        assertFalse(taken.take("known/1/7"), "who is heard is kept");
    }

    private static TakenNumbers throughState(TakenNumbers taken) throws Exception {
        TopicSplit.Serializer serializer = new TopicSplit.Serializer();
        byte[] bytes = serializer.serialize(new TopicSplit(taken.copy(), true));
        return serializer.deserialize(serializer.getVersion(), bytes).taken();
    }

    @Test
    void readsTheFirstVersionOfTheState() throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeBoolean(true);
        out.writeLong(5);
        out.writeInt(1);
        out.writeUTF("a");
        out.writeInt(1);
        out.writeLong(3);
        out.writeInt(4);
        for (long bound : new long[] {1, 2, 4, 6}) {
            out.writeLong(bound);
        }
        TakenNumbers old = new TopicSplit.Serializer().deserialize(1, bytes.toByteArray()).taken();
        assertEquals(
                "{\"v\":1,\"at\":0,\"checkpoint\":0,\"taken\":{\"a\":{\"3\":2}},"
                        + "\"missing\":{\"a\":{\"3\":1}},\"lost\":0,\"messages\":5}",
                old.toJson(0, 0));
    }

    @Test
    void survivesSerialisationAndCopies() throws Exception {
        taken.take("a/1/1");
        taken.take("a/1/3");
        taken.take(null);
        TopicSplit.Serializer serializer = new TopicSplit.Serializer();
        byte[] bytes = serializer.serialize(new TopicSplit(taken.copy(), true));
        TopicSplit split = serializer.deserialize(serializer.getVersion(), bytes);
        assertEquals(taken.toJson(0, 0), split.taken().toJson(0, 0));
        assertTrue(split.restored());
        TakenNumbers copy = taken.copy();
        copy.take("a/1/2");
        assertFalse(taken.toJson(0, 0).equals(copy.toJson(0, 0)));
        assertFalse(split.taken().take("a/1/3"));
    }

    @Test
    void theStateHoldsNoAddress() throws Exception {
        taken.take("a/1/1");
        byte[] bytes = new TopicSplit.Serializer().serialize(new TopicSplit(taken, true));
        assertFalse(new String(bytes, java.nio.charset.StandardCharsets.ISO_8859_1).contains("tcp"));
        assertEquals("link", new TopicSplit(taken, true).splitId());
    }
}
