package io.speck.link.testing;

import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.function.Supplier;

/** Waits for conditions, never for time. */
public final class Wait {
    private static final Duration LIMIT = Duration.ofSeconds(120);

    private Wait() {}

    public static void until(String what, Callable<Boolean> condition) throws Exception {
        until(what, condition, () -> "");
    }

    public static void until(String what, Callable<Boolean> condition, Supplier<Object> seen)
            throws Exception {
        long deadline = System.nanoTime() + LIMIT.toNanos();
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("waited in vain until " + what + "; seen " + seen.get());
            }
            Thread.sleep(10);
        }
    }
}
