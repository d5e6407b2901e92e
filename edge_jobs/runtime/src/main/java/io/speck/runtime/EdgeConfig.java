package io.speck.runtime;

import java.io.File;
import java.time.Duration;
import org.apache.flink.configuration.ClusterOptions;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.configuration.JobManagerOptions;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.RpcOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.util.ExceptionUtils;

/** The configuration of a single-JVM site: config.yaml, overrides, and defaults for small edges. */
final class EdgeConfig {
    static final String USAGE = "--config-dir <folder with config.yaml> [-Dkey=value ...]";

    private EdgeConfig() {}

    /**
     * Reads the configuration that the arguments name.
     *
     * @throws IllegalArgumentException with one sentence for the user
     */
    static Configuration fromArguments(String[] args) {
        String folder = null;
        Configuration overrides = new Configuration();
        for (int i = 0; i < args.length; i++) {
            String word = args[i];
            if ((word.equals("--config-dir") || word.equals("--configDir"))
                    && i + 1 < args.length) {
                folder = args[++i];
            } else if (word.equals("-D") && i + 1 < args.length) {
                override(overrides, args[++i]);
            } else if (word.startsWith("-D") && word.length() > 2) {
                override(overrides, word.substring(2));
            } else {
                throw new IllegalArgumentException(
                        "cannot read argument \"" + word + "\": expected " + USAGE);
            }
        }
        if (folder == null) {
            throw new IllegalArgumentException(
                    "cannot start without --config-dir: expected " + USAGE);
        }
        Configuration configuration = load(folder, overrides);
        try {
            addDefaults(configuration);
        } catch (RuntimeException e) {
            throw refuse(folder, e);
        }
        return configuration;
    }

    private static void override(Configuration overrides, String pair) {
        int equals = pair.indexOf('=');
        if (equals < 1) {
            throw new IllegalArgumentException(
                    "cannot read -D" + pair + ": write -Dkey=value");
        }
        overrides.setString(pair.substring(0, equals).trim(), pair.substring(equals + 1).trim());
    }

    private static Configuration load(String folder, Configuration overrides) {
        File file = new File(folder, GlobalConfiguration.FLINK_CONF_FILENAME);
        if (!file.canRead()) {
            throw new IllegalArgumentException(
                    "cannot read "
                            + file
                            + ": give --config-dir a folder with a Flink config.yaml");
        }
        try {
            return GlobalConfiguration.loadConfiguration(folder, overrides);
        } catch (RuntimeException e) {
            throw refuse(folder, e);
        }
    }

    private static IllegalArgumentException refuse(String folder, RuntimeException e) {
        return new IllegalArgumentException(
                "cannot use " + new File(folder, GlobalConfiguration.FLINK_CONF_FILENAME) + ": "
                        + describeCauses(e),
                e);
    }

    /** Joins the messages of an error and its causes on one line. */
    static String describeCauses(Throwable error) {
        StringBuilder line = new StringBuilder();
        for (Throwable e = error; e != null; e = e.getCause()) {
            String message = e.getMessage() == null ? e.getClass().getSimpleName() : e.getMessage();
            message = message.lines().map(String::trim).reduce((a, b) -> a + " " + b).orElse("");
            if (line.indexOf(message) < 0) {
                line.append(line.length() == 0 ? "" : ": ").append(message);
            }
        }
        return line.toString();
    }

    /** Whether an error is, or was caused by, one of the given type. */
    static boolean isCausedBy(Throwable error, Class<? extends Throwable> type) {
        return ExceptionUtils.findThrowable(error, type).isPresent();
    }

    private static void addDefaults(Configuration configuration) {
        int slots = configuration.get(TaskManagerOptions.NUM_TASK_SLOTS);
        if (slots < 1) {
            throw new IllegalArgumentException(
                    TaskManagerOptions.NUM_TASK_SLOTS.key() + " must be at least 1, not " + slots);
        }
        // what jobs print goes to the log, which is rotated
        setIfAbsent(
                configuration,
                TaskManagerOptions.TASK_MANAGER_SYSTEM_OUT_MODE,
                TaskManagerOptions.SystemOutMode.LOG);
        // by default Flink listens on every interface, and its REST API runs any code
        setIfAbsent(configuration, RestOptions.ADDRESS, "127.0.0.1");
        setIfAbsent(
                configuration, RestOptions.BIND_ADDRESS, configuration.get(RestOptions.ADDRESS));
        // RPC stays inside the JVM and its end of the blob server is always "localhost"
        configuration.set(JobManagerOptions.BIND_HOST, "localhost");

        // state is on the heap; between tasks of one JVM a few buffers for each slot are enough
        setIfAbsent(configuration, TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ZERO);
        if (!configuration.contains(TaskManagerOptions.NETWORK_MEMORY_MIN)
                && !configuration.contains(TaskManagerOptions.NETWORK_MEMORY_MAX)) {
            MemorySize network = MemorySize.ofMebiBytes(Math.min(64, 4 + 2L * slots));
            configuration.set(TaskManagerOptions.NETWORK_MEMORY_MIN, network);
            configuration.set(TaskManagerOptions.NETWORK_MEMORY_MAX, network);
        }
        setIfAbsent(
                configuration,
                JobManagerOptions.COMPLETED_APPLICATION_STORE_CACHE_SIZE,
                MemorySize.ofMebiBytes(4).getBytes());
        setIfAbsent(
                configuration,
                ClusterOptions.CLUSTER_SERVICES_SHUTDOWN_TIMEOUT,
                Duration.ofSeconds(5));
        setIfAbsent(configuration, RpcOptions.ASK_TIMEOUT_DURATION, Duration.ofSeconds(60));
    }

    private static <T> void setIfAbsent(
            Configuration configuration, ConfigOption<T> option, T value) {
        if (!configuration.contains(option)) {
            configuration.set(option, value);
        } else {
            configuration.get(option); // refuses a value that cannot be read
        }
    }
}
