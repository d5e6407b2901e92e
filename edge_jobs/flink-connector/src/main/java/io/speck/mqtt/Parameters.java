package io.speck.mqtt;

/** The arguments of a job, under the name that jobs know. */
public final class Parameters extends io.speck.link.Parameters {
    private static final long serialVersionUID = 1L;

    private Parameters(io.speck.link.Parameters parameters) {
        super(parameters);
    }

    /** Reads the arguments of a {@code main}. */
    public static Parameters of(String... args) {
        return new Parameters(parse(args));
    }
}
