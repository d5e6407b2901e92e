/**
 * Flink with its REST API in one small JVM, for edges of 2 GB or less. It uses Flink and nothing of
 * the connector or the jobs.
 *
 * <p>Begin with {@link io.speck.runtime.EdgeSite}, whose {@code main} engines are started by.
 */
package io.speck.runtime;
