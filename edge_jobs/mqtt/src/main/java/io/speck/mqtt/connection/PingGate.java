package io.speck.mqtt.connection;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;

/**
 * Answers the client library's pings while a connection reads nothing.
 *
 * <p>The broker's answers cannot be seen then, and the library would take it for dead: it is taken
 * for alive until reading goes on. The pings themselves are sent, so that the broker does not take
 * us for dead.
 *
 * <p>Used by one network thread.
 */
final class PingGate extends ChannelOutboundHandlerAdapter {
    static final String NAME = "speck.pings";

    private boolean answering;

    void setAnswering(boolean nothingIsRead) {
        answering = nothingIsRead;
    }

    @Override
    public void write(ChannelHandlerContext to, Object message, ChannelPromise promise) {
        to.write(message, promise);
        if (answering && HiveMqInternals.isPingRequest(message)) {
            to.fireChannelRead(HiveMqInternals.pingResponse());
        }
    }
}
