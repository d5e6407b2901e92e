package io.speck.guard;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandleProxies;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.concurrent.CompletableFuture;
import java.util.function.IntConsumer;

/** Ways in which a job tries to end the process, each with status 7. */
public final class SampleJob {
    private SampleJob() {}

    public static void exit() {
        System.exit(7);
    }

    public static void halt() {
        Runtime.getRuntime().halt(7);
    }

    public static void runtimeExit() {
        Runtime.getRuntime().exit(7);
    }

    public static void lambda() {
        Runnable exit = () -> System.exit(7);
        exit.run();
    }

    public static void staticInitializer() {
        new Broken();
    }

    public static void reflection() throws Exception {
        System.class.getMethod("exit", int.class).invoke(null, 7);
    }

    public static void reflectionInThread() throws Exception {
        var exit = System.class.getMethod("exit", int.class);
        inThread(
                () -> {
                    try {
                        exit.invoke(null, 7);
                    } catch (ReflectiveOperationException e) {
                        throw new IllegalStateException(e.getCause());
                    }
                });
    }

    public static void thread() throws Exception {
        inThread(() -> System.exit(7));
    }

    public static void threadWithoutContext() throws Exception {
        Thread thread = new Thread(() -> Runtime.getRuntime().halt(7));
        thread.setContextClassLoader(null);
        thread.start();
        thread.join();
    }

    public static void methodReference() throws Exception {
        IntConsumer exit = System::exit;
        CompletableFuture.completedFuture(7).thenAcceptAsync(exit::accept).exceptionally(e -> null).get();
    }

    /** Only classes of the JDK call exit. */
    public static void methodHandle() throws Exception {
        MethodHandle exit =
                MethodHandles.lookup()
                        .findStatic(
                                System.class,
                                "exit",
                                MethodType.methodType(void.class, int.class));
        inThread(
                MethodHandleProxies.asInterfaceInstance(
                        Runnable.class, MethodHandles.insertArguments(exit, 0, 7)));
    }

    public static void loaderOfItsOwn() throws Exception {
        URL here = SampleJob.class.getProtectionDomain().getCodeSource().getLocation();
        ClassLoader parent = SampleJob.class.getClassLoader();
        try (URLClassLoader loader =
                new URLClassLoader(new URL[] {here}, parent) {
                    @Override
                    public Class<?> loadClass(String name) throws ClassNotFoundException {
                        return name.startsWith("io.speck.guard.SampleJob")
                                ? findClass(name)
                                : super.loadClass(name);
                    }
                }) {
            loader.loadClass(SampleJob.class.getName()).getMethod("exit").invoke(null);
        }
    }

    /** Tries it when the engine ends. */
    public static void shutdownHook() {
        Runtime.getRuntime().addShutdownHook(new Thread(SampleJob::halt));
        Runtime.getRuntime().addShutdownHook(new Thread(SampleJob::exit));
    }

    private static void inThread(Runnable work) throws InterruptedException {
        Thread thread = new Thread(work);
        thread.start();
        thread.join();
    }

    private static final class Broken {
        static {
            exit();
        }
    }
}
