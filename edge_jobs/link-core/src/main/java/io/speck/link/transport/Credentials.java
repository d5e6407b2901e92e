package io.speck.link.transport;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.TrustManagerFactory;

/**
 * User, password and certificates for a broker: read from files at the engine for each connection,
 * never an argument of a job.
 *
 * <p>The folder named by the environment variable {@code SPECK_CREDENTIALS_DIR} holds files with
 * lines {@code key=value}: {@code address} (the broker's, the scheme included: a password for an
 * encrypted connection goes over no other; several are separated by spaces), {@code user}, {@code
 * password}, {@code mechanism}, {@code ca} (with it the connection uses TLS in any case), {@code cert} and {@code key}
 * (PEM files, relative to the folder).
 *
 * @param user null when the broker lets everybody in, or takes the user from the certificate
 * @param mechanism by which Kafka checks the password; null: the usual one
 * @param ca null when the address says whether to encrypt, and the JVM whom to trust
 * @param cert our certificate, with its chain; null when the broker asks for none
 * @param key the private key of {@code cert}, in PKCS #8
 */
public record Credentials(
        String user, String password, String mechanism, Path ca, Path cert, Path key) {
    public static final Credentials NONE =
            new Credentials(null, null, null, null, null, null);
    private static final Pattern PKCS8 =
            Pattern.compile("-----BEGIN PRIVATE KEY-----(.*?)-----END", Pattern.DOTALL);
    private static final String BYTE_ORDER_MARK = "\ufeff";
    private static final Pattern AROUND = Pattern.compile("^[ \t]+|[ \t]+\\z");
    static final String VARIABLE = "SPECK_CREDENTIALS_DIR";
    public static final String PROPERTY = "speck.credentials.dir";

    /** Returns the credentials for this broker, or {@link #NONE}. */
    public static Credentials forBroker(BrokerAddress broker) {
        String folder = System.getProperty(PROPERTY, System.getenv(VARIABLE));
        return folder == null || folder.isBlank() ? NONE : forBroker(broker, Path.of(folder));
    }

    /** The same from another folder. */
    public static Credentials forBroker(BrokerAddress broker, Path folder) {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, Files::isRegularFile)) {
            for (Path file : files) {
                byte[] bytes = Files.readAllBytes(file);
                String text = new String(bytes, StandardCharsets.UTF_8);
                Map<String, String> entry = parse(text);
                if (isFor(broker, entry.get("address"))) {
                    if (!Arrays.equals(bytes, text.getBytes(StandardCharsets.UTF_8))) {
                        throw new IOException(file + " is not UTF-8");
                    }
                    return new Credentials(
                            entry.get("user"),
                            entry.get("password"),
                            entry.get("mechanism"),
                            resolve(folder, entry.get("ca")),
                            resolve(folder, entry.get("cert")),
                            resolve(folder, entry.get("key")));
                }
            }
            return NONE;
        } catch (IOException e) {
            throw new UncheckedIOException(
                    "cannot read the credentials in %s (set by %s): %s"
                            .formatted(folder, VARIABLE, e.getMessage()),
                    e);
        }
    }

    /** Creates trust managers that trust what {@link #ca} signed. */
    public TrustManagerFactory createTrustManagers() {
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

    /** Creates key managers that present {@link #cert}. */
    public KeyManagerFactory createKeyManagers() {
        try (InputStream in = Files.newInputStream(cert)) {
            Certificate[] chain =
                    CertificateFactory.getInstance("X.509")
                            .generateCertificates(in)
                            .toArray(new Certificate[0]);
            if (chain.length == 0) {
                throw new GeneralSecurityException("it holds no certificate");
            }
            // in memory only; the default type would encrypt the key with 10 000 rounds, and decrypt
            // it at once, for each connection
            KeyStore store = KeyStore.getInstance("JKS");
            store.load(null, null);
            String algorithm = chain[0].getPublicKey().getAlgorithm();
            store.setKeyEntry("own", readKey(algorithm), new char[0], chain);
            KeyManagerFactory factory =
                    KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            factory.init(store, new char[0]);
            return factory;
        } catch (IOException | GeneralSecurityException | IllegalArgumentException e) {
            throw new IllegalStateException(
                    "cannot use the certificate " + cert + " with the key " + key, e);
        }
    }

    private PrivateKey readKey(String algorithm) throws IOException, GeneralSecurityException {
        if (key == null) {
            throw new GeneralSecurityException("the credentials have no line key=");
        }
        Matcher pem = PKCS8.matcher(Files.readString(key, StandardCharsets.ISO_8859_1));
        if (!pem.find()) {
            throw new GeneralSecurityException(
                    key + " holds no key in PKCS #8; convert it: openssl pkcs8 -topk8 -nocrypt");
        }
        byte[] bytes = Base64.getMimeDecoder().decode(pem.group(1));
        return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(bytes));
    }

    private static Path resolve(Path folder, String file) {
        return file == null || file.isEmpty() ? null : folder.resolve(file);
    }

    @Override
    public String toString() {
        return user == null ? "no user" : "user " + user; // never the password: this goes to logs
    }

    private static boolean isFor(BrokerAddress broker, String addresses) {
        for (String address : addresses == null ? new String[0] : addresses.trim().split("\\s+")) {
            try {
                if (Transports.parse(address).equals(broker)) {
                    return true;
                }
            } catch (IllegalArgumentException e) {
                continue; // the address of something that is not a broker
            }
        }
        return false;
    }

    /**
     * Reads the lines of a file. The control plane reads the same files, and both are tested with
     * {@code tests/data/credentials.json}: UTF-8, without a byte order mark; lines end with \n or
     * \r\n, and nothing but spaces and tabs around a key or a value is cut off.
     */
    static Map<String, String> parse(String text) {
        Map<String, String> entry = new HashMap<>();
        String content = text.startsWith(BYTE_ORDER_MARK) ? text.substring(1) : text;
        for (String line : content.split("\r?\n")) {
            int equals = line.indexOf('=');
            String key = equals < 0 ? "" : cut(line.substring(0, equals));
            if (!key.isEmpty() && !key.startsWith("#")) {
                entry.put(key, cut(line.substring(equals + 1)));
            }
        }
        return entry;
    }

    private static String cut(String text) {
        return AROUND.matcher(text).replaceAll("");
    }
}
