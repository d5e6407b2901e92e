/**
 * What the core asks of a broker: connections over which a link is read and written. It uses {@code
 * protocol} and none of the other packages.
 *
 * <p>Begin with {@link io.speck.link.transport.Transport}, which a broker's module implements;
 * {@link io.speck.link.transport.Transports} finds it by the scheme of an address. {@link
 * io.speck.link.transport.Inbox} and {@link io.speck.link.transport.InFlightMessages} are there for
 * connections of any broker.
 */
package io.speck.link.transport;
