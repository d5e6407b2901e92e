/**
 * The files that source, sink and Spark itself keep in a query's checkpoint folder. It uses nothing
 * of ours.
 */
package io.speck.spark.files;
