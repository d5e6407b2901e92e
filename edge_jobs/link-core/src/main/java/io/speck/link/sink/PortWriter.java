package io.speck.link.sink;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Writes each record to one of several links, each of which has a writer with its own numbers. */
final class PortWriter implements LinkWriter {
    private final List<LinkWriter> links;
    private final LinkChooser chooser;

    PortWriter(List<LinkWriter> links, LinkChooser chooser) {
        this.links = links;
        this.chooser = chooser;
    }

    @Override
    public void write(byte[] record) throws InterruptedException, IOException {
        links.get(chooser.choose(record, links.size())).write(record);
    }

    @Override
    public void flush() throws InterruptedException, IOException {
        for (LinkWriter link : links) {
            link.flush();
        }
    }

    @Override
    public List<Committable> prepareCommit() {
        List<Committable> all = new ArrayList<>();
        links.forEach(link -> all.addAll(link.prepareCommit()));
        return all;
    }

    @Override
    public List<SinkState> snapshot() {
        List<SinkState> all = new ArrayList<>();
        links.forEach(link -> all.addAll(link.snapshot()));
        return all;
    }

    @Override
    public void close() {
        links.forEach(LinkWriter::close);
    }
}
