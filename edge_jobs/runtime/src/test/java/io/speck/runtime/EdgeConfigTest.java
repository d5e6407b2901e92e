package io.speck.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.JobManagerOptions;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class EdgeConfigTest {
    @TempDir Path folder;

    private Configuration read(String yaml, String... more) throws IOException {
        Files.writeString(folder.resolve("config.yaml"), yaml);
        String[] args = new String[2 + more.length];
        args[0] = "--config-dir";
        args[1] = folder.toString();
        System.arraycopy(more, 0, args, 2, more.length);
        return EdgeConfig.fromArguments(args);
    }

    private String refusal(String yaml, String... more) {
        return assertThrows(IllegalArgumentException.class, () -> read(yaml, more)).getMessage();
    }

    @Test
    void fillsInWhatASmallEdgeNeeds() throws IOException {
        Configuration configuration = read("rest.address: 127.0.9.1\n");
        assertEquals("127.0.9.1", configuration.get(RestOptions.BIND_ADDRESS));
        assertEquals("localhost", configuration.get(JobManagerOptions.BIND_HOST));
        assertEquals(MemorySize.ZERO, configuration.get(TaskManagerOptions.MANAGED_MEMORY_SIZE));
        assertEquals(
                MemorySize.ofMebiBytes(6),
                configuration.get(TaskManagerOptions.NETWORK_MEMORY_MAX));
    }

    @Test
    void listensOnLoopbackWhenNothingIsSaid() throws IOException {
        assertEquals("127.0.0.1", read("rest.port: 1\n").get(RestOptions.BIND_ADDRESS));
    }

    @Test
    void overridesWin() throws IOException {
        Configuration configuration =
                read("taskmanager.numberOfTaskSlots: 2\n", "-Dtaskmanager.numberOfTaskSlots=7");
        assertEquals(7, configuration.get(TaskManagerOptions.NUM_TASK_SLOTS));
    }

    @Test
    void tellsWhatIsWrong() {
        assertTrue(refusal("a: [b\n").startsWith("cannot use " + folder.resolve("config.yaml")));
        assertTrue(
                refusal("taskmanager.numberOfTaskSlots: many\n")
                        .contains("'many' for key 'taskmanager.numberOfTaskSlots'"));
        assertTrue(refusal("taskmanager.numberOfTaskSlots: 0\n").contains("at least 1, not 0"));
        assertEquals("cannot read -Dx: write -Dkey=value", refusal("", "-Dx"));
        assertTrue(refusal("", "--slots").startsWith("cannot read argument \"--slots\""));
        assertTrue(
                assertThrows(IllegalArgumentException.class, () -> EdgeConfig.fromArguments(
                                new String[] {"--config-dir", "/no/such/folder"}))
                        .getMessage()
                        .startsWith("cannot read /no/such/folder/config.yaml"));
        assertTrue(
                assertThrows(
                                IllegalArgumentException.class,
                                () -> EdgeConfig.fromArguments(new String[0]))
                        .getMessage()
                        .startsWith("cannot start without --config-dir"));
    }
}
