/**
 * The Flink source: reads the messages of one topic, drops repeats, and acknowledges each message
 * when a checkpoint that covers it is complete.
 *
 * <p>It uses {@code protocol}, {@code connection}, {@code metrics} and Flink; not {@code sink}.
 *
 * <p>Begin with {@link io.speck.mqtt.source.MqttSourceReader}: it polls a connection, {@link
 * io.speck.mqtt.source.RecordIntake} makes records of the messages, {@link
 * io.speck.mqtt.source.PendingCheckpoints} knows what each checkpoint covers, and {@link
 * io.speck.mqtt.source.TakenAnnouncer} announces it. {@link io.speck.mqtt.source.TopicSplit} is the
 * state.
 */
package io.speck.mqtt.source;
