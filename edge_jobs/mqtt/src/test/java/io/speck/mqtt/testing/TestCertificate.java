package io.speck.mqtt.testing;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;

/**
 * A certificate for 127.0.0.1 that signs itself.
 *
 * @param file in PEM
 * @param key in PEM
 */
public record TestCertificate(Path file, Path key) {
    private static final String PASSWORD = "password";

    public static TestCertificate in(Path folder) throws Exception {
        Path store = folder.resolve("certificate.p12");
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
                                "-storepass", PASSWORD,
                                "-keystore", store.toString())
                        .redirectErrorStream(true)
                        .start();
        String said = new String(keytool.getInputStream().readAllBytes());
        if (keytool.waitFor() != 0) {
            throw new IllegalStateException("keytool failed: " + said);
        }
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(store)) {
            keys.load(in, PASSWORD.toCharArray());
        }
        return new TestCertificate(
                pem(
                        folder.resolve("certificate.pem"),
                        "CERTIFICATE",
                        keys.getCertificate("broker").getEncoded()),
                pem(
                        folder.resolve("key.pem"),
                        "PRIVATE KEY",
                        keys.getKey("broker", PASSWORD.toCharArray()).getEncoded()));
    }

    private static Path pem(Path file, String what, byte[] bytes) throws Exception {
        String body = Base64.getMimeEncoder().encodeToString(bytes);
        return Files.writeString(
                file, "-----BEGIN " + what + "-----\n" + body + "\n-----END " + what + "-----\n");
    }
}
