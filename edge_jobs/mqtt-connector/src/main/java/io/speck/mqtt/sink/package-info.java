/**
 * The Flink sink: publishes records as messages of one topic, at once or when a checkpoint is
 * complete, and publishes again what a broker may have forgotten.
 *
 * <p>It uses {@code protocol}, {@code connection}, {@code metrics} and Flink; not {@code source}.
 *
 * <p>Begin with {@link io.speck.mqtt.sink.MqttSink}, which says what runs in which delivery mode.
 * Both ways end in {@link io.speck.mqtt.sink.Publisher}; its parts are {@link
 * io.speck.mqtt.sink.SendQueue}, {@link io.speck.mqtt.sink.OutcomeHandler}, {@link
 * io.speck.mqtt.sink.RefusalRetry}, {@link io.speck.mqtt.sink.PendingResend}, {@link
 * io.speck.mqtt.sink.ResendWindow} and {@link io.speck.mqtt.sink.LinkStatus}. Checkpoints keep
 * {@link io.speck.mqtt.sink.Committable} and {@code MqttSink.State}.
 */
package io.speck.mqtt.sink;
