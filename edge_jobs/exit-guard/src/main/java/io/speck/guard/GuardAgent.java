package io.speck.guard;

import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;

/** The agent's entry: {@code java -javaagent:speck-exit-guard.jar ...}. */
public final class GuardAgent {
    private GuardAgent() {}

    /** Puts the guard into {@link Runtime}; ends the JVM with one sentence if that is impossible. */
    public static void premain(String arguments, Instrumentation instrumentation) {
        try {
            install(instrumentation);
        } catch (Exception | LinkageError e) {
            System.err.println(
                    "speck-exit-guard: cannot guard the engine on Java "
                            + Runtime.version().feature()
                            + ", use Java 17, 21 or 25: "
                            + e);
            // an exception would make the JVM dump its core
            Runtime.getRuntime().halt(1);
        }
    }

    private static void install(Instrumentation instrumentation) throws Exception {
        RuntimeTransformer transformer = new RuntimeTransformer();
        instrumentation.addTransformer(transformer, true);
        try {
            instrumentation.retransformClasses(Runtime.class);
        } finally {
            instrumentation.removeTransformer(transformer);
        }
        transformer.finish();
    }

    /** The JVM drops the errors of a transformer: they are kept here. */
    private static final class RuntimeTransformer implements ClassFileTransformer {
        private Throwable failure = new IllegalStateException("java.lang.Runtime was not offered");

        @Override
        public byte[] transform(
                Module module,
                ClassLoader loader,
                String name,
                Class<?> redefined,
                ProtectionDomain domain,
                byte[] bytes) {
            if (!"java/lang/Runtime".equals(name)) {
                return null;
            }
            try {
                byte[] guarded = GuardedRuntime.guard(bytes);
                failure = null;
                return guarded;
            } catch (RuntimeException | LinkageError e) {
                failure = e;
                return null;
            }
        }

        void finish() {
            if (failure != null) {
                throw new IllegalStateException(failure);
            }
        }
    }
}
