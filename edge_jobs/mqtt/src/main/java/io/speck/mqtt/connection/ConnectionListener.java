package io.speck.mqtt.connection;

/** What a user of a connection wants to hear of. Called on the network thread. */
public interface ConnectionListener {
    /** The broker has let a reader in; it is not subscribed yet. */
    default void onAdmitted(MqttConnection connection, boolean sessionPresent) {}

    /** Connected, and subscribed if it is a reader's. */
    default void onReady(MqttConnection connection, boolean sessionPresent, int sendMaximum) {}

    /** There are messages to {@link MqttConnection#poll}; called once for each batch read. */
    default void onMessages(MqttConnection connection) {}

    /** Messages in flight have an outcome; called once for each batch. */
    default void onOutcomes(MqttConnection connection) {}

    /** Something is announced about a sink's link, on a topic of {@code Topics}. */
    default void onAnnouncement(MqttConnection connection, String topic, byte[] payload) {}

    /** The end, also of a failed attempt to connect. */
    default void onEnd(MqttConnection connection, Throwable cause) {}
}
