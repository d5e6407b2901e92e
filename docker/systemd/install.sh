#!/bin/sh
# Installs an edge site on Debian 12 or Raspberry Pi OS 12 without Docker; README.md has the steps.
#   install.sh ADDRESS FLINK_LIB [ROOT]
# ADDRESS    the private address of this machine, where its engine and broker listen
# FLINK_LIB  the folder pyflink/lib of the package apache-flink-libraries
# ROOT       install below this folder instead of / (makes no users; for images and for trying)
# Run it again to update: it leaves state, credentials and the .env files alone.
set -eu

fail() {
    echo "install.sh: cannot install: $1" >&2
    exit 1
}

[ $# -ge 2 ] || fail "usage: install.sh ADDRESS FLINK_LIB [ROOT]"
address=$1
flink=$2
root=${3:-}
docker=$(cd "$(dirname "$0")/.." && pwd)
edge_jobs=$docker/../edge_jobs
connector=$edge_jobs/flink-connector/target/speck-flink-connector.jar
runtime=$edge_jobs/runtime/target/speck-runtime.jar
guard=$edge_jobs/exit-guard/target/speck-exit-guard.jar

speck=$docker/../speck
[ -f "$speck/agent/agent.py" ] || fail "no speck beside $docker; copy the checkout's folder speck"
[ -f "$connector" ] && [ -f "$runtime" ] && [ -f "$guard" ] || fail "the jars are not built; run make jars"
ls "$flink"/flink-dist-*.jar >/dev/null 2>&1 || fail "no flink-dist in $flink; see README.md"

# away with what an older version left: two flink-dist on one class path are a riddle
rm -rf "$root/opt/speck/lib" "$root/opt/speck/python"
install -d "$root/opt/speck/bin" "$root/opt/speck/lib" "$root/opt/speck/python" \
    "$root/etc/speck/flink" \
    "$root/etc/speck/mosquitto" "$root/etc/systemd/system/mosquitto.service.d"
install -m 755 "$docker"/bin/*.sh "$root/opt/speck/bin/"
install -m 644 "$docker/systemd/README.md" "$root/opt/speck/"
install -m 644 "$flink"/flink-dist-*.jar "$flink"/log4j-*.jar "$connector" "$runtime" "$guard" \
    "$root/opt/speck/lib/"
install -m 644 "$docker/flink/edge/config.yaml" "$docker/flink/log4j.properties" \
    "$root/etc/speck/flink/"
install -m 644 "$docker/mosquitto/mosquitto.conf" "$docker/mosquitto/acl" \
    "$root/etc/speck/mosquitto/"
(cd "$speck/.." && find speck -name '*.py' -exec install -D -m 644 {} "$root/opt/speck/python/{}" \;)
install -m 644 "$docker/systemd/speck-edge.service" "$docker/systemd/speck-agent.service" \
    "$docker/systemd/speck-runner.service" "$root/etc/systemd/system/"
install -m 644 "$docker/systemd/mosquitto.service.d/speck.conf" \
    "$root/etc/systemd/system/mosquitto.service.d/"
[ -e "$root/etc/speck/edge.env" ] ||
    printf 'SPECK_ENGINE_ADDRESS=%s\n' "$address" > "$root/etc/speck/edge.env"
[ -e "$root/etc/speck/broker.env" ] ||
    printf 'SPECK_MQTT_LISTEN=%s\nSPECK_MQTT_URL=tcp://%s:1883\n' "$address" "$address" \
        > "$root/etc/speck/broker.env"
[ -e "$root/etc/speck/agent.env" ] ||
    printf 'SPECK_SITE=\nSPECK_SERVER=\nSPECK_AGENT_LISTEN=%s:8090\nSPECK_AGENT_OPTIONS=\n' "$address" \
        > "$root/etc/speck/agent.env"
ls "$root/etc/speck/credentials/"* >/dev/null 2>&1 ||
    "$docker/bin/new-credentials.sh" "$root/etc/speck/credentials" broker "tcp://$address:1883"
if [ -z "$root" ]; then
    id speck >/dev/null 2>&1 ||
        useradd --system --user-group --home-dir /var/lib/speck --shell /usr/sbin/nologin speck
    chown -R speck:speck /etc/speck/credentials
    systemctl daemon-reload
fi
