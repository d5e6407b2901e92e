package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.speck.link.transport.BrokerAddress;
import io.speck.link.transport.Credentials;
import io.speck.link.transport.Transports;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class CredentialsTest {
    @Test
    void credentialsAreFoundByTheBrokersAddress(@TempDir Path folder) throws Exception {
        Files.writeString(folder.resolve("a"), "address=tcp://one:1883\nuser=u\npassword=p=q\n");
        Files.writeString(folder.resolve("b"), "address=http://one:8081/\nuser=engine\n");
        Credentials found = Credentials.forBroker(Transports.parse("tcp://ONE"), folder);
        assertEquals("u", found.user());
        assertEquals("p=q", found.password());
        assertFalse(found.toString().contains("p=q"));
        assertEquals(
                Credentials.NONE,
                Credentials.forBroker(Transports.parse("tcp://two:1883"), folder));
        Files.writeString(folder.resolve("c"), "address=mqtts://three\nuser=safe\n");
        assertEquals(
                "safe",
                Credentials.forBroker(Transports.parse("ssl://three:8883"), folder).user());
        assertEquals(
                Credentials.NONE,
                Credentials.forBroker(Transports.parse("tcp://three:8883"), folder),
                "a password for an encrypted connection goes over no other");
    }

    /** The control plane reads the same files, and is tested with the same table. */
    @ParameterizedTest(name = "{0}")
    @MethodSource("validFiles")
    void filesAreReadAsTheControlPlaneDoes(
            String name, byte[] content, String user, String password, @TempDir Path folder)
            throws Exception {
        Files.write(folder.resolve("site"), withAddress(content));
        Credentials found = Credentials.forBroker(Transports.parse("tcp://one:1883"), folder);
        assertEquals(user, found.user());
        assertEquals(password, found.password());
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("filesThatAreNotUtf8")
    void aFileThatIsNotUtf8IsRefused(String name, byte[] content, @TempDir Path folder)
            throws Exception {
        Files.write(folder.resolve("site"), withAddress(content));
        BrokerAddress broker = Transports.parse("tcp://one:1883");
        UncheckedIOException refusal =
                assertThrows(
                        UncheckedIOException.class, () -> Credentials.forBroker(broker, folder));
        assertTrue(refusal.getMessage().endsWith("is not UTF-8"), refusal.getMessage());
        BrokerAddress other = Transports.parse("tcp://two:1883");
        assertEquals(Credentials.NONE, Credentials.forBroker(other, folder));
    }

    /** At the end: what is first in the file is to be tested, too. */
    private static byte[] withAddress(byte[] content) throws IOException {
        ByteArrayOutputStream file = new ByteArrayOutputStream();
        file.write(content);
        file.write("\naddress=tcp://one:1883\n".getBytes(StandardCharsets.UTF_8));
        return file.toByteArray();
    }

    static Stream<Arguments> validFiles() throws IOException {
        return rows("valid")
                .map(
                        row ->
                                Arguments.of(
                                        row.get("name").asText(),
                                        HexFormat.of().parseHex(row.get("hex").asText()),
                                        row.get("user").asText(),
                                        row.get("password").asText()));
    }

    static Stream<Arguments> filesThatAreNotUtf8() throws IOException {
        return rows("not_utf8")
                .map(
                        row ->
                                Arguments.of(
                                        row.get("name").asText(),
                                        HexFormat.of().parseHex(row.get("hex").asText())));
    }

    private static Stream<JsonNode> rows(String kind) throws IOException {
        Path table = Path.of("../../tests/data/credentials.json");
        JsonNode rows = new ObjectMapper().readTree(Files.readString(table)).get(kind);
        return StreamSupport.stream(rows.spliterator(), false);
    }
}
