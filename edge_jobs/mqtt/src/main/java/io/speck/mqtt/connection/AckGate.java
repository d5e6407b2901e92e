package io.speck.mqtt.connection;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;

/**
 * Keeps a reader's PUBACKs back until checkpoints release them, in order and with one write to the
 * network.
 *
 * <p>The client library has manual acknowledgement, but with it closes the connection when more
 * messages come than the Receive Maximum allows, and Mosquitto 2.0 does send more: with a backlog
 * each PUBACK makes it send up to another Receive Maximum. So the library acknowledges at once, and
 * this handler holds what it writes. A held PUBACK is also smaller than a held message.
 *
 * <p>Used by one network thread.
 */
final class AckGate extends ChannelOutboundHandlerAdapter {
    static final String NAME = "speck.acks";

    private static final int HEADER = 0x4002_0000; // PUBACK, two bytes follow: the packet id
    private static final int PUBACK_BYTES = 4;

    /**
     * The PUBACKs as they go over the wire: there are many at each checkpoint, and to encode each
     * into a buffer of its own was the greatest part of the source's work.
     */
    private final ByteBuf held = Unpooled.buffer();

    private ChannelHandlerContext context;
    private boolean nothingToFlush;
    private long released;

    @Override
    public void handlerAdded(ChannelHandlerContext added) {
        context = added;
    }

    @Override
    public void write(ChannelHandlerContext to, Object message, ChannelPromise promise) {
        if (HiveMqInternals.isPubAck(message)) {
            held.writeInt(HEADER | HiveMqInternals.packetIdOf(message));
            nothingToFlush = true;
        } else {
            to.write(message, promise);
        }
    }

    @Override
    public void flush(ChannelHandlerContext to) {
        if (nothingToFlush) {
            nothingToFlush = false;
        } else {
            to.flush();
        }
    }

    /** Writes the first PUBACKs of this connection: so many, counted from its beginning. */
    void releaseUpTo(long count) {
        if (context == null || !context.channel().isActive()) {
            return;
        }
        int bytes = (int) Math.min(held.readableBytes(), (count - released) * PUBACK_BYTES);
        if (bytes > 0) {
            ByteBuf out = context.alloc().buffer(bytes);
            held.readBytes(out, bytes).discardReadBytes();
            released += bytes / PUBACK_BYTES;
            context.writeAndFlush(out, context.voidPromise());
        }
    }
}
