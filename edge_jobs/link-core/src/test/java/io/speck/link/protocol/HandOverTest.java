package io.speck.link.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class HandOverTest {
    @Test
    void readsEntriesInTheirOrder() {
        HandOver read = HandOver.parse("0a1b-A/4294967303/12;0a1b-A/9/0/3-3,7-20;b%2Fc%3B%20%2B%C3%A9/1/5");
        assertEquals(
                List.of(
                        new HandOver.Entry("0a1b-A", 4294967303L, 12, List.of()),
                        new HandOver.Entry(
                                "0a1b-A",
                                9,
                                0,
                                List.of(new HandOver.Range(3, 3), new HandOver.Range(7, 20))),
                        new HandOver.Entry("b/c; +é", 1, 5, List.of())),
                read.entries());
    }

    @Test
    void anEmptyTextIsNothing() {
        assertEquals(HandOver.NONE, HandOver.parse(""));
        assertEquals(1, HandOver.parse("a/1/2;").entries().size());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "a", "a/1", "a/1/", "a/x/1", "a/-1/1", "a/1/-1", "/1/1", "a/1/1/", "a/1/1/5",
                "a/1/1/5-", "a/1/1/6-5", "a/1/1/0-5", "a/1/1/5-6,", "a/1/1/5-6/7", "%zz/1/1",
                "a/1/1;b", "a/1/1234567890123456789"
            })
    void refusesAnythingElse(String text) {
        String message =
                assertThrows(IllegalArgumentException.class, () -> HandOver.parse(text))
                        .getMessage();
        assertTrue(message.startsWith("cannot use --taken: "), message);
    }

    @Test
    void refusesANameThatNoStampMayHave() {
        String name = "x".repeat(TakenNumbers.MAX_NAME_LENGTH);
        HandOver.parse(name + "/1/1");
        assertThrows(IllegalArgumentException.class, () -> HandOver.parse("x" + name + "/1/1"));
    }

    @Test
    void goesWithTheSourceToWhereItRuns() throws Exception {
        HandOver read = HandOver.parse("a/1/2/4-5");
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        new ObjectOutputStream(bytes).writeObject(read);
        ByteArrayInputStream written = new ByteArrayInputStream(bytes.toByteArray());
        assertEquals(read, new ObjectInputStream(written).readObject());
    }
}
