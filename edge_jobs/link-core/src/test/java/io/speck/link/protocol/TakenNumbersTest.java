package io.speck.link.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
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
                taken.toJson(5, 7, 0, null));
    }

    @Test
    void saysWhatItHasAndWhatItMisses() {
        taken.take("a/1/1");
        taken.take("a/1/2");
        taken.take("a/1/5");
        taken.take("a/9/2"); // a later epoch of a known producer begins at 1
        assertEquals(
                "{\"v\":1,\"at\":1,\"checkpoint\":2,\"taken\":{\"a\":{\"1\":2,\"9\":0}},"
                        + "\"missing\":{\"a\":{\"1\":2,\"9\":1}},"
                        + "\"above\":{\"a\":{\"1\":[[5,5]],\"9\":[[2,2]]}},\"lost\":0,\"messages\":4}",
                taken.toJson(1, 2, 0, null));
        assertEquals(3, taken.missing());
    }

    @Test
    void keepsTheLastFourEpochs() {
        for (int epoch = 1; epoch <= 6; epoch++) {
            taken.take("a/" + epoch + "/1");
        }
        assertTrue(taken.toJson(0, 0, 0, null).contains("{\"a\":{\"3\":1,\"4\":1,\"5\":1,\"6\":1}}"));
    }

    @Test
    void holesOfForgottenEpochsStayCounted() throws Exception {
        taken.take("a/1/1");
        taken.take("a/1/4");
        for (int epoch = 2; epoch <= 6; epoch++) {
            taken.take("a/" + epoch + "/1");
        }
        assertEquals(2, taken.missing());
        assertTrue(taken.toJson(0, 0, 0, null).contains("\"lost\":2,"));
        assertEquals(2, throughState(taken).missing());
    }

    /**
     * After an outage a sink sends what was refused, or acknowledged in vain, behind newer ones.
     */
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
    void forgetsTheEpochMetFirstNotTheLowest() {
        for (int epoch = 16; epoch >= 11; epoch--) {
            taken.take("a/" + epoch + "/1");
            taken.take("b/1/1"); // so that nothing is remembered from the last message
            assertFalse(taken.take("a/" + epoch + "/1"), "epoch " + epoch);
        }
        assertTrue(taken.toJson(0, 0, 0, null).contains("{\"14\":1,\"13\":1,\"12\":1,\"11\":1}"));
    }

    @Test
    void whatWentOverALinkThatWasLeftIsNotMissing() throws Exception {
        taken.useLink("client-on-one");
        for (int number = 1; number <= 10; number++) {
            taken.take("a/1/" + number);
        }
        TakenNumbers elsewhere = throughState(taken);
        elsewhere.useLink("client-on-two");
        elsewhere.take("b/1/1");
        TakenNumbers back = throughState(elsewhere);
        back.useLink("client-on-one");
        assertFalse(back.take("a/1/10"));
        assertTrue(back.take("a/1/50"));
        assertTrue(back.take("a/1/52"));
        assertEquals(1, back.missing());
        assertTrue(back.toJson(0, 0, 0, null).contains("\"a\":{\"1\":50}"), back.toJson(0, 0, 0, null));
    }

    @Test
    void anEpochThatBeganOnALinkThatWasLeftIsMetLate() throws Exception {
        taken.useLink("client-on-one");
        taken.take("a/1/1");
        TakenNumbers back = throughState(taken);
        back.useLink("client-on-two");
        back.take("a/2/31");
        assertEquals(0, back.missing());
        back.take("a/3/2");
        assertEquals(1, back.missing(), "this one began here");
    }

    @Test
    void theSameLinkIsNotLeftByARestart() throws Exception {
        taken.useLink("client-on-one");
        taken.take("a/1/1");
        TakenNumbers again = throughState(taken);
        again.useLink("client-on-one");
        again.take("a/1/4");
        again.take("a/2/3");
        assertEquals(4, again.missing());
    }

    @Test
    void strangersCannotFillTheMemory() {
        assertTrue(taken.take("x".repeat(201) + "/1/1"));
        assertTrue(taken.take("x".repeat(201) + "/1/1"), "too long a name is nobody's");
        taken.take("known/1/1");
        for (int i = 0; i < 2 * TakenNumbers.MAX_PRODUCERS; i++) {
            taken.take("p" + i + "/1/1");
            taken.take("known/1/" + (i + 2));
        }
        assertEquals(TakenNumbers.MAX_PRODUCERS, taken.toJson(0, 0, 0, null).split("\\{\"1\":1").length);
        assertFalse(taken.take("known/1/7"), "who is heard is kept");
    }

    private static HandOver given(String text) {
        return HandOver.parse(text);
    }

    /** What the next reader would be given, without what is around it. */
    private static String json(TakenNumbers taken) {
        return taken.toJson(0, 0, 0, null);
    }

    @Test
    void whatTheReaderBeforeHasTakenIsARepeat() {
        taken.useLink("client-on-two");
        taken.takeOver(given("a/1/10/12-13,15-15"));
        assertFalse(taken.take("a/1/1"));
        assertFalse(taken.take("a/1/10"));
        assertFalse(taken.take("a/1/13"));
        assertFalse(taken.take("a/1/15"));
        assertTrue(taken.take("a/1/11"));
        assertTrue(taken.take("a/1/14"));
        assertTrue(taken.take("a/1/18"));
        assertEquals(2, taken.missing(), "what comes after is known to have come here");
        assertEquals(3, taken.messages());
        assertTrue(json(taken).contains("\"taken\":{\"a\":{\"1\":15}},"), json(taken));
        taken.take("a/2/3");
        assertEquals(4, taken.missing(), "it is no new producer");
    }

    @Test
    void takingOverAgainChangesNothing() throws Exception {
        HandOver before = given("a/1/10/13-20;a/2/7;b%2F%C3%A9/3/0/5-6");
        taken.useLink("client-on-one");
        for (int number : new int[] {1, 2, 5, 9, 30}) {
            taken.take("a/1/" + number);
        }
        TakenNumbers moved = throughState(taken);
        moved.useLink("client-on-two");
        moved.takeOver(before);
        String once = json(moved);
        moved.takeOver(before);
        assertEquals(once, json(moved));
        for (int number = 1; number <= 25; number++) {
            moved.take("a/1/" + number);
            moved.take("a/2/" + number);
            moved.take("a/4/" + (number + 1));
        }
        TakenNumbers later = throughState(moved);
        later.useLink("client-on-two");
        String more = json(later);
        later.takeOver(before);
        assertEquals(sorted(more), sorted(json(later)));
        assertEquals(moved.missing(), later.missing());
    }

    /** Producers stand in the order in which they were heard. */
    private static List<String> sorted(String json) {
        return json.chars().sorted().mapToObj(Integer::toString).toList();
    }

    @Test
    void holesThatTheReaderBeforeHasFilledAreLost() throws Exception {
        taken.useLink("client-on-one");
        for (int number : new int[] {1, 3, 6, 9}) {
            taken.take("a/1/" + number);
        }
        assertEquals(5, taken.missing());
        TakenNumbers moved = throughState(taken);
        moved.useLink("client-on-two");
        moved.takeOver(given("a/1/4"));
        assertEquals(2, moved.lost(), "2 and 4");
        assertEquals(5, moved.missing());
        assertTrue(moved.take("a/1/5"));
        assertTrue(moved.take("a/1/7"));
        assertTrue(moved.take("a/1/8"));
        assertEquals(2, moved.missing());
        moved.takeOver(given("a/1/4"));
        assertEquals(2, moved.lost());
    }

    @Test
    void aGapAfterWhatWasTakenOverIsAHole() throws Exception {
        taken.useLink("client-on-one");
        for (int number = 1; number <= 5; number++) {
            taken.take("a/1/" + number);
        }
        TakenNumbers moved = throughState(taken);
        moved.useLink("client-on-two");
        moved.takeOver(given("a/1/40"));
        moved.take("a/1/43");
        assertEquals(2, moved.missing());
        assertTrue(json(throughState(moved)).contains("\"above\":{\"a\":{\"1\":[[43,43]]}}"));
    }

    @Test
    void aLateStartGoesWhenWhatWasBeforeItIsTakenOver() throws Exception {
        taken.useLink("client-on-one");
        taken.take("a/1/1");
        TakenNumbers moved = throughState(taken);
        moved.useLink("client-on-two");
        moved.take("a/1/50"); // 2 to 49 were not for us
        TakenNumbers far = throughState(moved);
        far.useLink("client-on-three");
        far.takeOver(given("a/1/30"));
        assertEquals(0, far.missing());
        assertTrue(json(far).contains("\"taken\":{\"a\":{\"1\":50}},"), json(far));
        TakenNumbers near = throughState(moved);
        near.useLink("client-on-three");
        near.takeOver(given("a/1/49"));
        assertEquals(0, near.missing());
        near.take("a/1/52");
        assertEquals(1, near.missing());
        assertTrue(json(near).contains("\"taken\":{\"a\":{\"1\":50}},"), json(near));
        assertFalse(json(near).contains("[1,"), json(near));
    }

    @Test
    void anOldEpochTakenOverForgetsNoNewerOne() {
        taken.takeOver(given("a/1/9;a/2/9"));
        for (int epoch = 3; epoch <= 6; epoch++) {
            taken.take("a/" + epoch + "/1");
        }
        String before = json(taken);
        taken.takeOver(given("a/1/9;a/2/9"));
        assertEquals(before, json(taken));
        taken.takeOver(given("a/5/3;a/8/4"));
        assertTrue(json(taken).contains("{\"a\":{\"4\":1,\"5\":3,\"6\":1,\"8\":4}}"), json(taken));
    }

    @Test
    void epochsTakenOverHaveTheirPlaceInTheOrder() {
        taken.take("a/20/1");
        taken.take("a/21/1");
        taken.takeOver(given("a/12/7;a/11/8"));
        assertTrue(
                json(taken).contains("{\"a\":{\"12\":7,\"11\":8,\"20\":1,\"21\":1}}"),
                json(taken));
        taken.take("a/22/1");
        assertTrue(
                json(taken).contains("{\"a\":{\"11\":8,\"20\":1,\"21\":1,\"22\":1}}"),
                json(taken));
    }

    /** What was looked up for the message before must not be used after that. */
    @Test
    void takingOverMayForgetTheEpochJustHeard() {
        taken.take("a/1/1");
        taken.takeOver(given("a/2/1;a/3/1;a/4/1;a/5/1"));
        taken.take("a/1/2");
        assertTrue(json(taken).contains("\"3\":1,\"4\":1,\"5\":1,\"1\":2"), json(taken));
        assertTrue(taken.take("a/5/2"));
        assertFalse(taken.take("a/5/2"));
    }

    @Test
    void strangersTakenOverCannotFillTheMemory() {
        StringBuilder many = new StringBuilder();
        for (int i = 0; i < TakenNumbers.MAX_PRODUCERS + 5; i++) {
            many.append("p").append(i).append("/1/1;");
        }
        taken.takeOver(given(many.toString()));
        assertEquals(TakenNumbers.MAX_PRODUCERS + 1, json(taken).split("\\{\"1\":1").length);
        assertFalse(taken.take("p1004/1/1"));
        assertTrue(taken.take("p4/1/1"));
    }

    @Test
    void whatIsSaidOfRangesIsBounded() {
        for (int producer = 1; producer <= 8; producer++) {
            for (int i = 0; i < NumberRanges.MAX_RANGES; i++) {
                taken.take("p" + producer + "/1/" + (2 * i + 1));
            }
        }
        String above = json(taken).split("\"above\":")[1];
        assertFalse(above.contains("\"p3\""));
        assertTrue(above.contains("\"p4\"") && above.contains("\"p8\""));
    }

    @Test
    void saysNothingOfRangesAboveWhenThereAreNone() {
        taken.take("a/1/1");
        assertFalse(json(taken).contains("above"));
    }

    @Test
    void saysTheLastMarkWhenThereIsOne() {
        assertTrue(taken.toJson(0, 7, 0, "0af9").endsWith(",\"messages\":0,\"mark\":\"0af9\"}"));
        assertFalse(json(taken).contains("mark"));
    }

    /** What one reader says is what the next is given. */
    @Test
    void nothingIsLostOrRepeatedOnTheWayFromOneReaderToTheNext() {
        Random random = new Random(7);
        for (int round = 0; round < 200; round++) {
            TakenNumbers first = new TakenNumbers();
            first.take("a/1/1");
            Set<Long> had = new HashSet<>(Set.of(1L));
            for (int i = 0; i < 30; i++) {
                long number = 1 + random.nextInt(60);
                first.take("a/1/" + number);
                had.add(number);
            }
            TakenNumbers second = new TakenNumbers();
            second.useLink("other");
            second.takeOver(given("a/1/" + handedOver(json(first))));
            for (long number = 1; number <= 70; number++) {
                assertEquals(!had.contains(number), second.take("a/1/" + number), json(first));
            }
            assertEquals(0, second.missing());
        }
    }

    private static String handedOver(String json) {
        String upTo = json.split("\"taken\":\\{\"a\":\\{\"1\":")[1].split("}")[0];
        if (!json.contains("above")) {
            return upTo;
        }
        String ranges = json.split("\"above\":\\{\"a\":\\{\"1\":\\[\\[")[1].split("]]")[0];
        return upTo + "/" + ranges.replace(',', '-').replace("]-[", ",");
    }

    private static TakenNumbers throughState(TakenNumbers taken) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        taken.copy().write(new DataOutputStream(bytes));
        return TakenNumbers.read(
                new DataInputStream(new ByteArrayInputStream(bytes.toByteArray())));
    }

    @Test
    void survivesSerialisationAndCopies() throws Exception {
        taken.take("a/1/1");
        taken.take("a/1/3");
        taken.take(null);
        TakenNumbers restored = throughState(taken);
        assertEquals(taken.toJson(0, 0, 0, null), restored.toJson(0, 0, 0, null));
        TakenNumbers copy = taken.copy();
        copy.take("a/1/2");
        assertFalse(taken.toJson(0, 0, 0, null).equals(copy.toJson(0, 0, 0, null)));
        assertFalse(restored.take("a/1/3"));
    }
}
