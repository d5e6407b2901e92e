/**
 * The source of a link. {@link io.speck.spark.source.LinkStream} drives the core's reader; {@link
 * io.speck.spark.source.Spool} keeps what it takes.
 */
package io.speck.spark.source;
