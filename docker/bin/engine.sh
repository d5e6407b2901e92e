#!/bin/sh
# Starts the Flink of a site, in a container or under systemd: engine.sh edge | jobmanager | taskmanager
# edge is all of Flink in one JVM, for machines of 2 GB or less.
#
#   SPECK_LIB               folder of the jars, /opt/speck/lib
#   SPECK_CONF              folder with config.yaml and log4j.properties, /etc/speck/flink
#   SPECK_DATA              folder for logs, /var/lib/speck (config.yaml names the other folders)
#   SPECK_ENGINE_ADDRESS    address under which REST (edge) or RPC (jobmanager) is reached, 127.0.0.1
#   SPECK_ENGINE_LISTEN     address to listen on, the same. Flink's REST API runs any code that it
#                           is sent: loopback or a private address only.
#   SPECK_ENGINE_PORT       port of REST, 8081
#   SPECK_ENGINE_SLOTS      slots of the site, or of each taskmanager, 8
#   SPECK_ENGINE_HEAP       heap of the edge's JVM, 192m: about 10 MB a job beyond the first eight
#   SPECK_CREDENTIALS_DIR   credentials of the brokers, read by the connector
#   SPECK_TLS_NAME          name of the keystore in the credentials (NAME.p12, ca.p12, as speck ca
#                           makes them): everything is encrypted, and REST obeys only clients with
#                           a certificate; of NAME-clients.p12, if there is such a truststore
#
# Further arguments (-Dkey=value) override config.yaml.
set -eu

fail() {
    echo "speck-engine: cannot start: $1" >&2
    exit 1
}

role=${1:-}
[ $# -eq 0 ] || shift
lib=${SPECK_LIB:-/opt/speck/lib}
conf=${SPECK_CONF:-/etc/speck/flink}
log=${SPECK_DATA:-/var/lib/speck}/log
address=${SPECK_ENGINE_ADDRESS:-127.0.0.1}
listen=${SPECK_ENGINE_LISTEN:-$address}
port=${SPECK_ENGINE_PORT:-8081}
slots=${SPECK_ENGINE_SLOTS:-8}
heap=${SPECK_ENGINE_HEAP:-192m}
# A throw-away file of the JVM's own in /tmp helps nobody here and wears out an SD card.
java="java -XX:-UsePerfData"

command -v java >/dev/null || fail "java is missing; run apt-get install default-jre-headless"
for jar in flink-dist speck-flink-connector speck-exit-guard; do
    ls "$lib/$jar"*.jar >/dev/null 2>&1 || fail "$jar is not in $lib; install it there"
done

# What Flink reaches into; Java 17 wants each one named (env.java.opts.all of Flink's own files).
opens=
for package in lang net io nio text time util util.concurrent util.concurrent.atomic \
    util.concurrent.locks; do
    opens="$opens --add-opens=java.base/java.$package=ALL-UNNAMED"
done
# Java 17 takes the encoding from the locale: one of them for every site.
export LC_ALL=C.UTF-8
# The agent keeps a job from ending the engine with System.exit. (It is no option of `opens`: the tool
# that works out the memory settings runs no jobs.)
guard="-javaagent:$lib/speck-exit-guard.jar -Dfile.encoding=UTF-8"
logging="-Dlog.file=$log/$role.log -Dlog4j.configurationFile=file:$conf/log4j.properties"

# Prints one of the two lists of options that Flink works out from the memory in config.yaml.
memory() {
    asked=$1
    line=$2
    shift 2
    # shellcheck disable=SC2086  # lists of options, split on purpose
    $java $opens -cp "$lib/bin/bash-java-utils.jar:$lib/*" \
        org.apache.flink.runtime.util.bash.BashJavaUtils "$asked" --configDir "$conf" "$@" |
        sed -n 's/^BASH_JAVA_UTILS_EXEC_RESULT://p' | sed -n "${line}p"
}

# Prints the options for TLS. TLS 1.3 takes certificates of any kind of key, Flink's own choice only
# RSA. The password is no secret: the mode of the files protects the keys.
encryption() {
    folder=${SPECK_CREDENTIALS_DIR:-/etc/speck/credentials}
    own=$folder/$SPECK_TLS_NAME.p12
    clients=$folder/$SPECK_TLS_NAME-clients.p12
    [ -f "$clients" ] || clients=$folder/ca.p12
    for file in "$own" "$clients" "$folder/ca.p12"; do
        [ -f "$file" ] || fail "$file is missing; issue it with speck ca issue --keystore"
    done
    # inside the site only its own certificate is trusted
    print=$(keytool -list -v -keystore "$own" -storepass speck-keystore 2>/dev/null |
        sed -n 's/^[[:space:]]*SHA1: //p' | head -n 1)
    [ -n "$print" ] || fail "$own cannot be read with the password speck-keystore"
    for part in rest internal; do
        [ "$part" = rest ] && trusted=$clients || trusted=$folder/ca.p12
        printf -- '-Dsecurity.ssl.%s.enabled=true ' "$part"
        for store in keystore="$own" truststore="$trusted"; do
            printf -- '-Dsecurity.ssl.%s.%s ' "$part" "$store"
            printf -- '-Dsecurity.ssl.%s.%s-type=PKCS12 ' "$part" "${store%%=*}"
            printf -- '-Dsecurity.ssl.%s.%s-password=speck-keystore ' "$part" "${store%%=*}"
        done
        printf -- '-Dsecurity.ssl.%s.key-password=speck-keystore ' "$part"
    done
    printf -- '-Dsecurity.ssl.rest.authentication-enabled=true '
    printf -- '-Dsecurity.ssl.internal.cert.fingerprint=%s ' "$print"
    printf -- '-Dsecurity.ssl.protocol=TLSv1.3 '
    printf -- '-Dsecurity.ssl.algorithms=TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384'
}

if [ -n "${SPECK_TLS_NAME:-}" ]; then
    options=$(encryption)
    # shellcheck disable=SC2086  # a list of options, split on purpose
    set -- $options "$@"
fi
mkdir -p "$log"

# What the JVM says as it dies (of which memory it ran out) goes to $role.out, too: Flink shows that file,
# and so speck learns from it why the former process ended.
out=$log/$role.out
if [ -f "$out" ] && [ "$(wc -c <"$out")" -gt 100000 ]; then
    tail -c 20000 "$out" >"$out.new"
    mv "$out.new" "$out"
fi
pipe=$log/.$role.pipe
rm -f "$pipe"
if echo "speck: $role started $(date -u +%Y-%m-%dT%H:%M:%SZ)" >>"$out" && mkfifo "$pipe"; then
    tee -a "$out" <"$pipe" &
    exec >"$pipe"
    rm "$pipe"
fi

# shellcheck disable=SC2086  # the lists of options hold no spaces inside an option
case $role in
edge)
    exec $java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms80m "-Xmx$heap" \
        -XX:MaxMetaspaceSize=192m -XX:ReservedCodeCacheSize=64m -Xss512k \
        -XX:+ExitOnOutOfMemoryError $guard $opens $logging -cp "$lib/*" \
        io.speck.runtime.EdgeSite --config-dir "$conf" \
        "-Drest.address=$address" "-Drest.bind-address=$listen" "-Drest.port=$port" \
        "-Dtaskmanager.numberOfTaskSlots=$slots" "$@"
    ;;
jobmanager)
    set -- "-Djobmanager.rpc.address=$address" "-Djobmanager.bind-host=$listen" \
        "-Drest.address=$address" "-Drest.bind-address=$listen" "-Drest.port=$port" "$@"
    jvm=$(memory GET_JM_RESOURCE_PARAMS 1 "$@")
    [ -n "$jvm" ] || fail "Flink does not accept the memory settings in $conf/config.yaml"
    sizes=$(memory GET_JM_RESOURCE_PARAMS 2 "$@")
    exec $java $jvm -XX:+ExitOnOutOfMemoryError $guard $opens $logging -cp "$lib/*" \
        org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint \
        --configDir "$conf" $sizes "$@"
    ;;
taskmanager)
    set -- "-Djobmanager.rpc.address=$address" "-Dtaskmanager.numberOfTaskSlots=$slots" "$@"
    jvm=$(memory GET_TM_RESOURCE_PARAMS 1 "$@")
    [ -n "$jvm" ] || fail "Flink does not accept the memory settings in $conf/config.yaml"
    sizes=$(memory GET_TM_RESOURCE_PARAMS 2 "$@")
    exec $java $jvm -XX:+ExitOnOutOfMemoryError $guard $opens $logging -cp "$lib/*" \
        org.apache.flink.runtime.taskexecutor.TaskManagerRunner \
        --configDir "$conf" $sizes "$@"
    ;;
*)
    fail "expected edge, jobmanager or taskmanager, not '$role'"
    ;;
esac
