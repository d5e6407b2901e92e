package io.speck.mqtt.connection;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class CredentialsTest {
    @Test
    void credentialsAreFoundByTheBrokersAddress(@TempDir Path folder) throws Exception {
        Files.writeString(folder.resolve("a"), "address=tcp://one:1883\nuser=u\npassword=p=q\n");
        Files.writeString(folder.resolve("b"), "address=http://one:8081/\nuser=engine\n");
        Credentials found = Credentials.forBroker(BrokerAddress.parse("tcp://ONE"), folder);
        assertEquals("u", found.user());
        assertEquals("p=q", found.password());
        assertFalse(found.toString().contains("p=q"));
        assertEquals(
                Credentials.NONE,
                Credentials.forBroker(BrokerAddress.parse("tcp://two:1883"), folder));
        Files.writeString(folder.resolve("c"), "address=mqtts://three\nuser=safe\n");
        assertEquals(
                "safe",
                Credentials.forBroker(BrokerAddress.parse("ssl://three:8883"), folder).user());
        assertEquals(
                Credentials.NONE,
                Credentials.forBroker(BrokerAddress.parse("tcp://three:8883"), folder),
                "a password for an encrypted connection goes over no other");
    }
}
