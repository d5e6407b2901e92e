package io.speck.guard;

import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.util.concurrent.CountDownLatch;
import org.apache.flink.util.FlinkUserCodeClassLoaders;

/**
 * An engine for the tests: {@code job NAME} loads {@link SampleJob} as Flink loads jobs, runs one of
 * its methods, says that it lives, and ends with status 0; {@code exit}, {@code halt},
 * {@code thread} end it with status 5; {@code wait} says that it lives and waits for a signal.
 */
public final class SampleEngine {
    private SampleEngine() {}

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "job":
                run(args[1]);
                System.out.println("alive");
                System.exit(0);
                break;
            case "exit":
                System.exit(5);
                break;
            case "halt":
                Runtime.getRuntime().halt(5);
                break;
            case "thread":
                // as in the thread of a task, after the job's code has returned
                Thread.currentThread().setContextClassLoader(loader());
                System.exit(5);
                break;
            default:
                System.out.println("alive");
                new CountDownLatch(1).await();
        }
    }

    private static void run(String name) throws Exception {
        ClassLoader loader = loader();
        Thread.currentThread().setContextClassLoader(loader);
        Class<?> job = loader.loadClass("io.speck.guard.SampleJob");
        if (job.getClassLoader() == SampleEngine.class.getClassLoader()) {
            throw new IllegalStateException("the job has the engine's class loader");
        }
        try {
            job.getMethod(name).invoke(null);
        } catch (InvocationTargetException e) {
            e.printStackTrace();
        }
    }

    private static ClassLoader loader() {
        URL here = SampleEngine.class.getProtectionDomain().getCodeSource().getLocation();
        return FlinkUserCodeClassLoaders.childFirst(
                new URL[] {here},
                SampleEngine.class.getClassLoader(),
                new String[] {"java."},
                e -> {},
                true);
    }
}
