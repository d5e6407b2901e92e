package io.speck.guard;

import java.lang.StackWalker.Option;
import java.lang.StackWalker.StackFrame;
import java.util.Iterator;
import java.util.Set;

/** Decides who may end the process: the engine and the JVM may, a job may not. */
public final class ExitGuard {
    /** The class loaders that Flink makes for jars of jobs are, or extend, one of these. */
    private static final Set<String> LOADERS_OF_JOBS =
            Set.of(
                    "org.apache.flink.util.FlinkUserCodeClassLoader",
                    "org.apache.flink.util.FlinkUserCodeClassLoaders$SafetyNetWrapperClassLoader");

    // a method reference (System::exit) is a hidden class of the job
    private static final StackWalker STACK =
            StackWalker.getInstance(
                    Set.of(Option.RETAIN_CLASS_REFERENCE, Option.SHOW_HIDDEN_FRAMES));

    private ExitGuard() {}

    /**
     * Called by {@link Runtime} before it ends the process.
     *
     * @param method {@code exit} or {@code halt}
     * @throws SecurityException if a job calls, as {@link System#exit} documents it
     */
    public static void check(String method, int status) {
        if (STACK.walk(frames -> isJob(frames.iterator()))) {
            throw new SecurityException(
                    "cannot end the engine from a job: "
                            + (method.equals("exit") ? "System.exit(" : "Runtime.halt(")
                            + status
                            + ") was refused; throw an exception to fail the job");
        }
    }

    /**
     * Whether a class of a job is among the callers. A thread in which only the JDK's own classes
     * call (a timer, a method handle) belongs to the job whose context class loader it has; in
     * Flink's threads, which may have it too, Flink's classes are among the callers.
     */
    private static boolean isJob(Iterator<StackFrame> frames) {
        boolean engineCalls = false;
        while (frames.hasNext()) {
            ClassLoader loader = frames.next().getDeclaringClass().getClassLoader();
            if (isOfJob(loader)) {
                return true;
            }
            engineCalls |= loader != null && loader != ClassLoader.getPlatformClassLoader();
        }
        return !engineCalls && isOfJob(Thread.currentThread().getContextClassLoader());
    }

    /** Also for loaders that a job makes: their parent is the job's own. */
    private static boolean isOfJob(ClassLoader loader) {
        for (ClassLoader each = loader; each != null; each = each.getParent()) {
            for (Class<?> type = each.getClass(); type != null; type = type.getSuperclass()) {
                if (LOADERS_OF_JOBS.contains(type.getName())) {
                    return true;
                }
            }
        }
        return false;
    }
}
