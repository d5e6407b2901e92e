/**
 * The link core's shell for Spark: the data source {@code speck} of Structured Streaming.
 *
 * <p>Begin with {@link io.speck.spark.LinkProvider}. {@code source} writes what it takes into a
 * spool, from which a batch that is run again reads the same; {@code sink} numbers the rows of a
 * batch and keeps them, before it publishes them. Both keep their files in the query's checkpoint
 * folder ({@code files}), so that this is the whole state of a job. {@link io.speck.spark.OpenLinks} is what
 * programs in Python call.
 */
package io.speck.spark;
