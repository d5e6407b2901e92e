package io.speck.link.transport;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.ServiceLoader;

/** The transports that are in the class path. */
public final class Transports {
    private static final String SEPARATOR = "://";

    private Transports() {}

    /**
     * Parses the address of a broker of any known kind, and normalises it.
     *
     * @throws IllegalArgumentException when it is none
     */
    public static BrokerAddress parse(String address) {
        String text = address.trim();
        int end = text.indexOf(SEPARATOR);
        String scheme = end < 0 ? "" : text.substring(0, end).toLowerCase(Locale.ROOT);
        for (Transport transport : All.TRANSPORTS) {
            if (transport.schemes().contains(scheme)) {
                return transport.parse(text);
            }
        }
        throw refuse(address);
    }

    /**
     * Returns the transport of a broker.
     *
     * @throws IllegalArgumentException if there is none
     */
    public static Transport of(BrokerAddress broker) {
        for (Transport transport : All.TRANSPORTS) {
            if (transport.schemes().contains(broker.scheme())) {
                return transport;
            }
        }
        throw refuse(broker.toString());
    }

    private static IllegalArgumentException refuse(String address) {
        List<String> examples = All.TRANSPORTS.stream().map(Transport::example).toList();
        return new IllegalArgumentException(
                "cannot use the broker address \"%s\": it must be %s"
                        .formatted(address, String.join(" or ", examples)));
    }

    /** Loaded once, by the class loader that has this class: an engine's jobs have others. */
    private static final class All {
        private static final List<Transport> TRANSPORTS = new ArrayList<>();

        static {
            ServiceLoader.load(Transport.class, Transport.class.getClassLoader())
                    .forEach(TRANSPORTS::add);
        }
    }
}
