package io.speck.runtime;

import java.io.File;
import java.util.Collection;
import java.util.Collections;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ConfigurationUtils;
import org.apache.flink.configuration.JobManagerOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.core.plugin.PluginManager;
import org.apache.flink.runtime.blob.BlobServer;
import org.apache.flink.runtime.clusterframework.types.ResourceID;
import org.apache.flink.runtime.dispatcher.ArchivedApplicationStore;
import org.apache.flink.runtime.dispatcher.FileArchivedApplicationStore;
import org.apache.flink.runtime.entrypoint.component.DispatcherResourceManagerComponent;
import org.apache.flink.runtime.heartbeat.HeartbeatServices;
import org.apache.flink.runtime.metrics.MetricRegistry;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.rpc.FatalErrorHandler;
import org.apache.flink.runtime.security.token.DelegationTokenManager;
import org.apache.flink.runtime.util.ArchivedApplicationStoreUtils;
import org.apache.flink.runtime.webmonitor.retriever.MetricQueryServiceRetriever;
import org.apache.flink.shaded.guava33.com.google.common.base.Ticker;
import org.apache.flink.util.concurrent.ExecutorThreadFactory;
import org.apache.flink.util.concurrent.ScheduledExecutorServiceAdapter;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Flink's MiniCluster, made fit to run for months.
 *
 * <p>MiniCluster is meant for tests and keeps every ended job in memory for ever. This one stores
 * them as a standalone Flink does: on disk, for {@code jobstore.expiration-time}. Its task manager
 * can be replaced, as a supervisor restarts that of a standalone Flink.
 */
final class EdgeCluster extends MiniCluster {
    private static final Logger LOG = LoggerFactory.getLogger(EdgeCluster.class);
    private static final int CLOSE_SECONDS = 30;

    /** The name of the thread group in which Flink runs the threads of tasks. */
    private static final String TASK_THREADS = "Flink Task Threads";

    private final Configuration configuration;
    private int taskManagers = 1;
    private final ScheduledExecutorService cleaner =
            Executors.newSingleThreadScheduledExecutor(new ExecutorThreadFactory("ended-jobs"));

    EdgeCluster(Configuration configuration, PluginManager plugins) {
        super(
                new MiniClusterConfiguration.Builder()
                        .setConfiguration(configuration)
                        .setNumTaskManagers(1)
                        .setNumSlotsPerTaskManager(
                                configuration.get(TaskManagerOptions.NUM_TASK_SLOTS))
                        .setPluginManager(plugins)
                        .build());
        this.configuration = configuration;
    }

    @Override
    protected Collection<? extends DispatcherResourceManagerComponent>
            createDispatcherResourceManagerComponents(
                    Configuration configuration,
                    RpcServiceFactory rpcServiceFactory,
                    BlobServer blobServer,
                    HeartbeatServices heartbeatServices,
                    DelegationTokenManager delegationTokenManager,
                    MetricRegistry metricRegistry,
                    MetricQueryServiceRetriever metricQueryServiceRetriever,
                    FatalErrorHandler fatalErrorHandler)
                    throws Exception {
        DispatcherResourceManagerComponent component =
                createDispatcherResourceManagerComponentFactory()
                        .create(
                                configuration,
                                ResourceID.generate(),
                                getIOExecutor(),
                                rpcServiceFactory.createRpcService(),
                                getHaServices(),
                                blobServer,
                                heartbeatServices,
                                delegationTokenManager,
                                metricRegistry,
                                createJobStore(),
                                metricQueryServiceRetriever,
                                Collections.emptySet(),
                                fatalErrorHandler);
        component
                .getShutDownFuture()
                .thenCompose(status -> component.stopApplication(status, null));
        return Collections.singleton(component);
    }

    /**
     * Starts a task manager in the place of the one that has closed: jobs go on there from their
     * checkpoints. A task that is still alive (it did not end when it was cancelled) would run beside
     * its successor, so then there is none.
     *
     * @return false if the engine has to be started again
     */
    boolean replaceTaskManager() throws InterruptedException {
        try {
            // closes it if it is only not registered: there must never be two
            terminateTaskManager(taskManagers - 1).get(CLOSE_SECONDS, TimeUnit.SECONDS);
            if (hasTasks()) {
                LOG.error("A task of the task manager that has closed does not end");
                return false;
            }
            startTaskManager();
            taskManagers++;
            LOG.warn("The task manager has closed; a new one has been started");
            return true;
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            LOG.error("Cannot start a new task manager", e);
            return false;
        }
    }

    private static boolean hasTasks() {
        return Thread.getAllStackTraces().keySet().stream()
                .map(Thread::getThreadGroup)
                .anyMatch(group -> group != null && group.getName().equals(TASK_THREADS));
    }

    private ArchivedApplicationStore createJobStore() throws Exception {
        return new FileArchivedApplicationStore(
                new File(ConfigurationUtils.parseTempDirectories(configuration)[0]),
                ArchivedApplicationStoreUtils.getExpirationTime(configuration),
                configuration.get(JobManagerOptions.COMPLETED_APPLICATION_STORE_MAX_CAPACITY),
                configuration.get(JobManagerOptions.COMPLETED_APPLICATION_STORE_CACHE_SIZE),
                new ScheduledExecutorServiceAdapter(cleaner),
                Ticker.systemTicker());
    }
}
