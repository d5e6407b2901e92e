/**
 * The sink of a port. {@link io.speck.spark.sink.LinkWriteBuilder} collects the rows of a batch, and
 * {@link io.speck.spark.sink.QuerySink} drives the core's writer and publisher when the batch is
 * committed.
 */
package io.speck.spark.sink;
