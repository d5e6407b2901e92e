package io.speck.spark.files;

import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;

/**
 * Writes what Spark keeps in a checkpoint: offsets, commits, states. What has been written is on
 * disk when Spark goes on. With Spark's own managers a file has its name up to half a minute before
 * it has its blocks, so that a machine that loses power comes back with empty files.
 *
 * <p>Spark writes each file beside its place and renames it. Hadoop's checksums are not written:
 * they are a second file, renamed at another moment.
 *
 * <p>It is named by {@code spark.sql.streaming.checkpointFileManagerClass}. A checkpoint that is no
 * folder of this machine is written as Spark does it.
 */
public final class SyncedFileManager extends FileContextBasedCheckpointFileManager {
    private final boolean isHere;

    /** Spark looks for this constructor. */
    public SyncedFileManager(Path path, Configuration configuration) {
        super(path, configuration);
        String scheme = path.toUri().getScheme();
        isHere = scheme == null ? super.isLocal() : scheme.equals("file");
    }

    @Override
    public FSDataOutputStream createTempFile(Path file) {
        if (!isHere) {
            return super.createTempFile(file);
        }
        try {
            SyncedFile synced = new SyncedFile(new FileOutputStream(toLocal(file).toFile()));
            return new FSDataOutputStream(synced, null);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void renameTempFile(Path from, Path to, boolean overwrites) {
        if (isHere && overwrites) {
            deleteChecksum(toLocal(to));
        }
        super.renameTempFile(from, to, overwrites); // what it throws, Spark handles
        if (isHere) {
            try {
                Durable.syncFolder(toLocal(to).getParent());
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    @Override
    public void mkdirs(Path folder) {
        if (!isHere) {
            super.mkdirs(folder);
            return;
        }
        try {
            Durable.makeFolder(toLocal(folder));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Of a file that another manager has written: it does not fit what replaces that. */
    private static void deleteChecksum(java.nio.file.Path file) {
        try {
            Files.deleteIfExists(file.resolveSibling("." + file.getFileName() + ".crc"));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static java.nio.file.Path toLocal(Path path) {
        return java.nio.file.Path.of(path.toUri().getPath());
    }

    /** A file that is on disk once it is closed. */
    private static final class SyncedFile extends BufferedOutputStream {
        private final FileOutputStream file;
        private boolean closed;

        SyncedFile(FileOutputStream file) {
            super(file);
            this.file = file;
        }

        @Override
        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            try (file) {
                flush();
                file.getFD().sync();
            }
        }
    }
}
