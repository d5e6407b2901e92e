package io.speck.mqtt;

import com.hivemq.client.internal.mqtt.message.publish.puback.MqttPubAck;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;
import java.util.ArrayDeque;

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

    private final ArrayDeque<MqttPubAck> held = new ArrayDeque<>();
    private ChannelHandlerContext context;
    private boolean justHeld;
    private long released;

    @Override
    public void handlerAdded(ChannelHandlerContext added) {
        context = added;
    }

    @Override
    public void write(ChannelHandlerContext to, Object message, ChannelPromise promise) {
        if (message instanceof MqttPubAck acknowledgement) {
            held.add(acknowledgement);
            justHeld = true;
        } else {
            to.write(message, promise);
        }
    }

    @Override
    public void flush(ChannelHandlerContext to) {
        if (justHeld) {
            justHeld = false; // nothing was written
        } else {
            to.flush();
        }
    }

    /** Lets the first PUBACKs of this connection go: so many, counted from its beginning. */
    void releaseUpTo(long count) {
        if (context == null || !context.channel().isActive()) {
            return;
        }
        MqttPubAck acknowledgement;
        boolean written = false;
        while (released < count && (acknowledgement = held.poll()) != null) {
            context.write(acknowledgement, context.voidPromise());
            released++;
            written = true;
        }
        if (written) {
            context.flush();
        }
    }
}
