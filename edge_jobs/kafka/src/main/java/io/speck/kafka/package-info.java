/**
 * Links over Kafka. A topic is a log in which each reader has a place: the committed offset of the
 * consumer group that has its client id. What was sent is what lies in the log.
 *
 * <p>It uses {@code io.speck.link.transport} and {@code protocol}, and Kafka's client. {@code
 * binders/kafka} is the control plane's side of the same mapping.
 *
 * <p>Begin with {@link io.speck.kafka.KafkaTransport}; {@link io.speck.kafka.KafkaClient} keeps one
 * end of a link connected, {@link io.speck.kafka.LogReader} and {@link io.speck.kafka.LogWriter} are
 * its connections, {@link io.speck.kafka.LogTail} finds what a writer has sent.
 */
package io.speck.kafka;
