package io.speck.link.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SentNumberTest {
    private static final SentNumber SENT = new SentNumber("0a1b-A", 7, 42);

    private static SentNumber parse(String text, String topic) {
        return SentNumber.parse(text.getBytes(StandardCharsets.UTF_8), topic);
    }

    @Test
    void saysOfWhichTopicItIs() {
        assertEquals(
                "{\"v\":1,\"at\":5,\"unread\":3,\"topic\":\"speck/a\","
                        + "\"producer\":\"0a1b-A\",\"epoch\":7,\"number\":42}",
                new String(SENT.toJson(5, 3, SinkReport.NOTHING, "speck/a"), StandardCharsets.UTF_8));
    }

    @ParameterizedTest
    @ValueSource(strings = {"a", "a b", "é", "q\"", "q\\", "q\\\"", "\",\"producer\":\"x", "%d"})
    void isUnderstoodOnItsOwnTopicOnly(String topic) {
        byte[] said = SENT.toJson(5, 3, SinkReport.NOTHING, topic);
        assertEquals(SENT, SentNumber.parse(said, topic));
        assertNull(SentNumber.parse(said, "b"));
        assertNull(SentNumber.parse(said, topic + "\""));
    }

    @Test
    void saysWhatIsWrong() {
        SinkReport report = new SinkReport(1, 2, 3, "a \"topic\":\"b\" is refused");
        byte[] said = SENT.toJson(5, 0, report, "speck/a");
        assertEquals(
                "{\"v\":1,\"at\":5,\"unread\":0,\"refused\":1,\"left_out\":2,\"lost\":3,"
                        + "\"problem\":\"a \\\"topic\\\":\\\"b\\\" is refused\",\"topic\":\"speck/a\","
                        + "\"producer\":\"0a1b-A\",\"epoch\":7,\"number\":42}",
                new String(said, StandardCharsets.UTF_8));
        assertEquals(SENT, SentNumber.parse(said, "speck/a"));
        assertNull(SentNumber.parse(said, "b"));
    }

    @Test
    void withoutATopicItIsOfAny() {
        String old = "{\"v\":1,\"at\":5,\"unread\":3,\"producer\":\"0a1b-A\",\"epoch\":7,\"number\":42}";
        assertEquals(SENT, parse(old, "a"));
        assertNull(parse("{}", "a"));
        assertNull(parse("", "a"));
    }
}
