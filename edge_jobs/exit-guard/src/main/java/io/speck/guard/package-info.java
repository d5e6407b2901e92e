/**
 * A Java agent that keeps the jobs of an engine from ending its process.
 *
 * <p>Flink's own guard ({@code cluster.intercept-user-system-exit}) is a flag of the thread, which
 * each checkpoint clears, and it needs the security manager, which Java 24 removed. This one puts a
 * call in front of {@code Runtime.exit} and {@code Runtime.halt}, to which {@code System.exit} leads,
 * and looks at who calls. It prevents accidents, not attacks: jobs share the engine's process. Begin
 * at {@link io.speck.guard.GuardAgent}.
 */
package io.speck.guard;
