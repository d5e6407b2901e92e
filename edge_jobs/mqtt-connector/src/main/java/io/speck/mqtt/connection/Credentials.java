package io.speck.mqtt.connection;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.HashMap;
import java.util.Map;
import javax.net.ssl.TrustManagerFactory;

/**
 * User, password and CA for a broker: read from a file at the engine, never an argument of a job.
 *
 * <p>The folder named by the environment variable {@code SPECK_CREDENTIALS_DIR} holds one file per
 * site with lines {@code key=value}: {@code address} (the broker's, the scheme included: a password
 * for an encrypted connection goes over no other), {@code user}, {@code password}, {@code ca} (a
 * PEM file, relative to the folder; with it the connection uses TLS in any case).
 *
 * @param user null when the broker lets everybody in
 * @param ca null when the address says whether to encrypt, and the JVM whom to trust
 */
record Credentials(String user, String password, Path ca) {
    static final Credentials NONE = new Credentials(null, null, null);
    static final String VARIABLE = "SPECK_CREDENTIALS_DIR";
    static final String PROPERTY = "speck.credentials.dir";

    /** Returns the credentials for this broker, or {@link #NONE}. */
    static Credentials forBroker(BrokerAddress broker) {
        String folder = System.getProperty(PROPERTY, System.getenv(VARIABLE));
        return folder == null || folder.isBlank() ? NONE : forBroker(broker, Path.of(folder));
    }

    static Credentials forBroker(BrokerAddress broker, Path folder) {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, Files::isRegularFile)) {
            for (Path file : files) {
                Map<String, String> entry = read(file);
                if (isFor(broker, entry.get("address"))) {
                    String ca = entry.get("ca");
                    return new Credentials(
                            entry.get("user"),
                            entry.get("password"),
                            ca == null ? null : folder.resolve(ca));
                }
            }
            return NONE;
        } catch (IOException e) {
            throw new UncheckedIOException(
                    "cannot read the credentials in " + folder + " (set by " + VARIABLE + ")", e);
        }
    }

    /** Creates trust managers that trust what {@link #ca} signed. */
    TrustManagerFactory createTrustManagers() {
        try (InputStream in = Files.newInputStream(ca)) {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            int i = 0;
            for (Certificate c : CertificateFactory.getInstance("X.509").generateCertificates(in)) {
                store.setCertificateEntry("ca-" + i++, c);
            }
            TrustManagerFactory factory =
                    TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            factory.init(store);
            return factory;
        } catch (IOException | GeneralSecurityException e) {
            throw new IllegalStateException("cannot read the certificates in " + ca, e);
        }
    }

    @Override
    public String toString() {
        return user == null ? "no user" : "user " + user; // never the password: this goes to logs
    }

    private static boolean isFor(BrokerAddress broker, String address) {
        try {
            return address != null && BrokerAddress.parse(address).equals(broker);
        } catch (IllegalArgumentException e) {
            return false; // the file of something that is not a broker
        }
    }

    private static Map<String, String> read(Path file) throws IOException {
        Map<String, String> entry = new HashMap<>();
        String text = new String(Files.readAllBytes(file), StandardCharsets.ISO_8859_1);
        for (String line : text.split("\\R")) {
            int equals = line.indexOf('=');
            if (equals > 0 && !line.startsWith("#")) {
                String value = line.substring(equals + 1).trim();
                byte[] raw = value.getBytes(StandardCharsets.ISO_8859_1);
                entry.put(line.substring(0, equals).trim(), new String(raw, StandardCharsets.UTF_8));
            }
        }
        return entry;
    }
}
