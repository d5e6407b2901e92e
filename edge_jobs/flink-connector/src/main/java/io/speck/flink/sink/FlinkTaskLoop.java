package io.speck.flink.sink;

import io.speck.link.sink.TaskLoop;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.api.common.operators.ProcessingTimeService;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** The mailbox and the timers of a task. */
record FlinkTaskLoop(MailboxExecutor mailbox, ProcessingTimeService clock) implements TaskLoop {
    static FlinkTaskLoop of(WriterInitContext context) {
        return new FlinkTaskLoop(context.getMailboxExecutor(), context.getProcessingTimeService());
    }

    @Override
    public void execute(Runnable task) {
        mailbox.execute(task::run, "sink");
    }

    @Override
    public void runNext() throws InterruptedException {
        mailbox.yield();
    }

    @Override
    public long timeMs() {
        return clock.getCurrentProcessingTime();
    }

    @Override
    public void runAt(long timeMs, Runnable task) {
        clock.registerTimer(timeMs, now -> task.run());
    }
}
