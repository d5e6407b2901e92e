package io.speck.runtime;

import java.io.File;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.flink.configuration.ClusterOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.CoreOptions;
import org.apache.flink.util.FileUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The folder for everything that may end with the process.
 *
 * <p>Flink leaves its working folders (with copies of the jobs' jars) behind when it is killed or
 * cannot start, which fills the memory card of a small machine after enough power cuts. With {@code
 * process.working-dir} set, the folder {@code scratch} in it is emptied at each start; a lock keeps
 * two runtimes from sharing it. Otherwise it is a new temporary folder.
 */
final class ScratchFolder implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ScratchFolder.class);

    private final File folder;
    private final FileChannel lock;

    private ScratchFolder(File folder, FileChannel lock) {
        this.folder = folder;
        this.lock = lock;
    }

    /**
     * Prepares the folder and points the configuration at it.
     *
     * @throws IllegalArgumentException when another runtime uses it
     */
    static ScratchFolder prepare(Configuration configuration) throws IOException {
        String parent = configuration.get(ClusterOptions.PROCESS_WORKING_DIR_BASE);
        File folder;
        FileChannel lock = null;
        if (parent == null) {
            folder = Files.createTempDirectory("speck-runtime-").toFile();
        } else {
            Path home = Files.createDirectories(Path.of(parent));
            lock =
                    FileChannel.open(
                            home.resolve("speck-runtime.lock"),
                            StandardOpenOption.CREATE,
                            StandardOpenOption.WRITE);
            if (!tryLock(lock)) {
                lock.close();
                throw new IllegalArgumentException(
                        "cannot use process.working-dir "
                                + home
                                + ": another speck-runtime uses it; give each site its own");
            }
            folder = home.resolve("scratch").toFile();
            FileUtils.deleteDirectory(folder);
            Files.createDirectories(folder.toPath());
        }
        configuration.set(ClusterOptions.PROCESS_WORKING_DIR_BASE, folder.getPath());
        configuration.set(CoreOptions.TMP_DIRS, folder.getPath());
        return new ScratchFolder(folder, lock);
    }

    private static boolean tryLock(FileChannel channel) throws IOException {
        try {
            return channel.tryLock() != null;
        } catch (OverlappingFileLockException e) {
            return false;
        }
    }

    @Override
    public String toString() {
        return folder.toString();
    }

    @Override
    public void close() {
        try {
            FileUtils.deleteDirectory(folder);
            if (lock != null) {
                lock.close();
            }
        } catch (IOException e) {
            LOG.warn("Could not remove {}", folder, e);
        }
    }
}
