/** The files that source and sink keep in a query's checkpoint folder. It uses nothing of ours. */
package io.speck.spark.files;
