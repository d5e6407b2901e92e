package io.speck.spark.files;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** Folders of numbered files, each of which is there as a whole, and for good, or not at all. */
public final class Durable {
    /** Writes a file. */
    @FunctionalInterface
    public interface Content {
        void writeTo(DataOutputStream out) throws IOException;
    }

    private Durable() {}

    /** Writes a numbered file; it is on disk when this returns. */
    public static void write(Path folder, long number, Content content) throws IOException {
        Path fresh = folder.resolve("." + number + ".new");
        try (FileOutputStream file = new FileOutputStream(fresh.toFile());
                DataOutputStream out = new DataOutputStream(new BufferedOutputStream(file))) {
            content.writeTo(out);
            out.flush();
            file.getFD().sync();
        }
        Files.move(fresh, folder.resolve(Long.toString(number)), StandardCopyOption.ATOMIC_MOVE);
        syncFolder(folder);
    }

    /** Makes a folder, with those above it, unless it is there; it stays after a power failure. */
    static void makeFolder(Path folder) throws IOException {
        if (!Files.isDirectory(folder)) {
            Path parent = folder.toAbsolutePath().getParent();
            makeFolder(parent);
            Files.createDirectories(folder);
            syncFolder(parent);
        }
    }

    /** What has come into a folder stays there after a power failure. */
    static void syncFolder(Path folder) throws IOException {
        try (FileChannel entries = FileChannel.open(folder, StandardOpenOption.READ)) {
            entries.force(true);
        }
    }

    /** Returns the numbers of a folder's files, rising; makes the folder if it is not there. */
    public static List<Long> list(Path folder) throws IOException {
        makeFolder(folder);
        List<Long> numbers = new ArrayList<>();
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : (Iterable<Path>) files::iterator) {
                String name = file.getFileName().toString();
                if (isNumber(name)) {
                    numbers.add(Long.parseLong(name));
                } else {
                    Files.delete(file); // what was being written when the job was killed
                }
            }
        }
        numbers.sort(null);
        return numbers;
    }

    /** Returns the highest number of a file in a folder of Spark's; -1: there is none. */
    public static long newest(Path folder) throws IOException {
        if (!Files.isDirectory(folder)) {
            return -1;
        }
        try (Stream<Path> files = Files.list(folder)) {
            return files.map(file -> file.getFileName().toString())
                    .filter(Durable::isNumber)
                    .mapToLong(Long::parseLong)
                    .max()
                    .orElse(-1);
        }
    }

    private static boolean isNumber(String name) {
        return name.chars().allMatch(Character::isDigit);
    }

    /** Deletes the files below a number. */
    public static void deleteBelow(Path folder, long number) throws IOException {
        for (long each : list(folder)) {
            if (each < number) {
                Files.delete(folder.resolve(Long.toString(each)));
            }
        }
    }
}
