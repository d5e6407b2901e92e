package io.speck.runtime;

import java.io.PrintStream;
import java.net.BindException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.UnknownHostException;
import java.util.OptionalInt;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.plugin.PluginManager;
import org.apache.flink.core.plugin.PluginUtils;
import org.apache.flink.runtime.entrypoint.ClusterEntrypointUtils;
import org.apache.flink.runtime.taskexecutor.SystemOutRedirectionUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import sun.misc.Signal;

/**
 * The engine of a small edge: Flink's job manager, task manager and REST API in one JVM.
 *
 * <p>Prints {@code speck-runtime ready <rest url>} on stdout when REST answers and the slots are
 * there. Exit status: 0 after SIGTERM or SIGINT; 1 with one sentence on stderr when it cannot
 * start; 2 when the engine broke down while running (whoever supervises starts it again); 143 when
 * it was stopped before it was up, or did not end within {@value #STOP_SECONDS} s.
 *
 * <p>All jobs share the JVM: there is no isolation between them, and no task outlives its job
 * manager. The agent {@code speck-exit-guard.jar} keeps them from ending it with
 * {@code System.exit}.
 */
public final class EdgeSite {
    private static final Logger LOG = LoggerFactory.getLogger(EdgeSite.class);
    static final int STOP_SECONDS = 8;
    private static final int START_SECONDS = 120;
    private static final int MOST_SILENT = 30;
    private static final int MOST_EMPTY = 3;

    // what jobs print goes elsewhere (taskmanager.system-out.mode)
    private static final PrintStream OUT = System.out;
    private static final PrintStream ERR = System.err;

    private final Configuration configuration;
    private final CountDownLatch stop = new CountDownLatch(1);
    private volatile EdgeCluster cluster;

    private EdgeSite(Configuration configuration) {
        this.configuration = configuration;
    }

    public static void main(String[] args) {
        int status;
        try {
            status = new EdgeSite(EdgeConfig.fromArguments(args)).run();
        } catch (IllegalArgumentException e) {
            LOG.error("Cannot start", e);
            ERR.println("speck-runtime: " + e.getMessage());
            status = 1;
        } catch (Throwable e) {
            LOG.error("Cannot start", e);
            ERR.println("speck-runtime: cannot start: " + EdgeConfig.describeCauses(e));
            status = 1;
        }
        exit(status);
    }

    private int run() throws Exception {
        // a signal thread, and no shutdown hook: hooks run while others wait for locks in exit()
        Signal.handle(new Signal("TERM"), signal -> onSignal());
        Signal.handle(new Signal("INT"), signal -> onSignal());
        try (ScratchFolder scratch = ScratchFolder.prepare(configuration)) {
            LOG.debug("Working in {}", scratch);
            return runCluster();
        }
    }

    private int runCluster() throws Exception {
        ClusterEntrypointUtils.configureUncaughtExceptionHandler(configuration);
        SystemOutRedirectionUtils.redirectSystemOutAndError(configuration);
        PluginManager plugins = PluginUtils.createPluginManagerFromRootFolder(configuration);
        FileSystem.initialize(configuration, plugins);

        EdgeCluster started = new EdgeCluster(configuration, plugins);
        startCluster(started);
        cluster = started;
        URI rest = started.getRestAddress().get(START_SECONDS, TimeUnit.SECONDS);
        awaitReady(rest);
        OUT.println("speck-runtime ready " + rest);
        OUT.flush();

        if (watch()) {
            close();
            return 0;
        }
        return 2;
    }

    private void startCluster(EdgeCluster cluster) throws Exception {
        try {
            cluster.start();
        } catch (Exception e) {
            if (EdgeConfig.isCausedBy(e, BindException.class)) {
                throw new IllegalArgumentException(
                        "cannot listen on "
                                + configuration.get(RestOptions.BIND_ADDRESS)
                                + ":"
                                + configuration
                                        .getOptional(RestOptions.BIND_PORT)
                                        .orElse(configuration.get(RestOptions.PORT).toString())
                                + ": the port is in use, or the address is not of this machine;"
                                + " set rest.bind-address and rest.port",
                        e);
            }
            if (EdgeConfig.isCausedBy(e, UnknownHostException.class)) {
                throw new IllegalArgumentException(
                        "cannot resolve a host name ("
                                + EdgeConfig.describeCauses(e)
                                + "): add this machine's own name to /etc/hosts",
                        e);
            }
            throw e;
        }
    }

    /** Waits until REST answers and the task manager's slots are registered. */
    private void awaitReady(URI rest) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
        boolean secure = "https".equals(rest.getScheme());
        while (System.nanoTime() < deadline) {
            if (countTaskManagers().orElse(0) > 0 && (secure || answers(rest))) {
                return;
            }
            if (stop.await(50, TimeUnit.MILLISECONDS)) {
                return;
            }
        }
        throw new IllegalStateException(
                "REST at " + rest + " did not answer within " + START_SECONDS + " s");
    }

    private static boolean answers(URI rest) {
        try {
            HttpURLConnection connection =
                    (HttpURLConnection) rest.resolve("/overview").toURL().openConnection();
            connection.setConnectTimeout(2000);
            connection.setReadTimeout(5000);
            try {
                return connection.getResponseCode() == 200;
            } finally {
                connection.disconnect();
            }
        } catch (java.io.IOException e) {
            LOG.debug("REST does not answer yet", e);
            return false;
        }
    }

    /** Returns how many task managers are registered; empty if that is not known. */
    private OptionalInt countTaskManagers() {
        try {
            return OptionalInt.of(
                    cluster.requestClusterOverview()
                            .get(5, TimeUnit.SECONDS)
                            .getNumTaskManagersConnected());
        } catch (Exception e) {
            LOG.debug("No cluster overview", e);
            return OptionalInt.empty();
        }
    }

    /**
     * Waits for the signal to stop, and replaces a task manager that has closed.
     *
     * <p>MiniCluster closes its task manager at a fatal error (an operator whose {@code close()}
     * throws while its job is cancelled is one) but goes on without: an engine without slots would
     * look alive for ever. Rounds are counted, not seconds: a machine that was suspended, or too
     * busy to answer, has lost nothing.
     *
     * @return false when the engine broke down
     */
    private boolean watch() throws InterruptedException {
        int silent = 0;
        int empty = 0;
        while (!stop.await(1, TimeUnit.SECONDS)) {
            OptionalInt count = countTaskManagers();
            silent = count.isEmpty() ? silent + 1 : 0;
            empty = count.orElse(1) == 0 ? empty + 1 : 0;
            String fault = null;
            if (!cluster.isRunning()) {
                fault = "the engine closed";
            } else if (silent == MOST_SILENT) {
                fault = "the job manager does not answer";
            } else if (empty == MOST_EMPTY) {
                empty = 0;
                fault = cluster.replaceTaskManager() ? null : "no slots are left";
            }
            if (fault != null) {
                ERR.println("speck-runtime: cannot go on: " + fault + "; see log");
                return false;
            }
        }
        return true;
    }

    private void close() {
        haltAfter(STOP_SECONDS, 143);
        try {
            cluster.closeAsync().get(STOP_SECONDS, TimeUnit.SECONDS);
        } catch (Exception e) {
            LOG.warn("The engine did not close properly", e);
        }
    }

    private void onSignal() {
        if (cluster == null || stop.getCount() == 0) {
            // not up yet, or asked for the second time
            haltAfter(2, 143);
            exit(143);
        }
        stop.countDown();
    }

    private static void exit(int status) {
        haltAfter(STOP_SECONDS, status == 0 ? 143 : status);
        // hooks of Flink's remove temporary folders
        System.exit(status);
    }

    private static void haltAfter(int seconds, int status) {
        Thread watchdog =
                new Thread(
                        () -> {
                            try {
                                TimeUnit.SECONDS.sleep(seconds);
                            } catch (InterruptedException e) {
                                LOG.debug("Interrupted", e);
                            }
                            Runtime.getRuntime().halt(status);
                        },
                        "halt-watchdog");
        watchdog.setDaemon(true);
        watchdog.start();
    }
}
