package io.speck.kafka.testing;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;

/**
 * A listener of a Kafka for those that trust its certificate, which signs itself, and have a
 * password.
 *
 * @param certificate in PEM
 */
public record Guard(int port, Path keys, Path certificate) {
    public static final String USER = "edge-a";
    public static final String PASSWORD = "a \"quoted\\ pass=word";

    /** Whose password is sent as it is. */
    public static final String PLAIN_USER = "edge-b";

    public static final String PLAIN_PASSWORD = "secret";

    private static final String STORE_PASSWORD = "password";
    private static final String SCRAM = "SCRAM-SHA-512";
    private static final String MODULES = "org.apache.kafka.common.security.";

    static Guard in(Path folder, int port) throws Exception {
        Path keys = folder.resolve("broker.p12");
        Process keytool =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "keytool")
                                        .toString(),
                                "-genkeypair",
                                "-alias", "broker",
                                "-keyalg", "EC",
                                "-dname", "CN=broker",
                                "-ext", "SAN=ip:127.0.0.1",
                                "-storetype", "PKCS12",
                                "-storepass", STORE_PASSWORD,
                                "-keystore", keys.toString())
                        .redirectErrorStream(true)
                        .start();
        String said = new String(keytool.getInputStream().readAllBytes());
        if (keytool.waitFor() != 0) {
            throw new IllegalStateException("keytool failed: " + said);
        }
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(keys)) {
            store.load(in, STORE_PASSWORD.toCharArray());
        }
        String body =
                Base64.getMimeEncoder().encodeToString(store.getCertificate("broker").getEncoded());
        Path certificate =
                Files.writeString(
                        folder.resolve("broker.pem"),
                        "-----BEGIN CERTIFICATE-----\n" + body + "\n-----END CERTIFICATE-----\n");
        return new Guard(port, keys, certificate);
    }

    public String address() {
        return "kafka+ssl://127.0.0.1:" + port;
    }

    /** Writes a file of credentials into a folder of its own, which is returned. */
    public Path credentials(Path folder, String user, String password, String... more)
            throws Exception {
        Files.createDirectories(folder);
        List<String> lines =
                List.of(
                        "address=" + address(),
                        "user=" + user,
                        "password=" + password,
                        "ca=" + certificate,
                        String.join("\n", more));
        Files.write(folder.resolve("kafka"), lines);
        return folder;
    }

    /** Makes the user whose password only its hash is kept of. */
    void makeUser(Admin admin) throws Exception {
        ScramCredentialInfo how = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096);
        admin.alterUserScramCredentials(
                        List.of(new UserScramCredentialUpsertion(USER, how, PASSWORD)))
                .all()
                .get();
    }

    String listener() {
        return "SASL_SSL://127.0.0.1:" + port;
    }

    String settings() {
        String own = "listener.name.sasl_ssl.";
        return String.join(
                "\n",
                "inter.broker.listener.name=PLAINTEXT",
                "listener.security.protocol.map="
                        + "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
                own + "sasl.enabled.mechanisms=PLAIN," + SCRAM,
                own + "scram-sha-512.sasl.jaas.config="
                        + MODULES + "scram.ScramLoginModule required;",
                own + "plain.sasl.jaas.config=" + MODULES + "plain.PlainLoginModule required"
                        + " user_%s=\"%s\";".formatted(PLAIN_USER, PLAIN_PASSWORD),
                own + "ssl.keystore.type=PKCS12",
                own + "ssl.keystore.location=" + keys,
                own + "ssl.keystore.password=" + STORE_PASSWORD,
                own + "ssl.key.password=" + STORE_PASSWORD);
    }
}
