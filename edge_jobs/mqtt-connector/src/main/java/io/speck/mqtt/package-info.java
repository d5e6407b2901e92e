/**
 * What jobs use: {@link io.speck.mqtt.SpeckJob} joins a job to its two links, {@link
 * io.speck.mqtt.Parameters} reads its own arguments. All other packages are the connector's own.
 *
 * <p>Packages use each other in one direction: this one uses {@code source} and {@code sink}, these
 * use {@code connection} and {@code metrics}, and all of them {@code protocol}. A test keeps it so.
 *
 * <p>Begin with {@link io.speck.mqtt.SpeckJob}.
 */
package io.speck.mqtt;
