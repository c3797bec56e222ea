#!/bin/sh
# What `make run` does: a node first, then everything that shows what it is for.
#
#   scripts/run_all.sh VENV_BIN DATA_DIR LISTEN [arguments of `millstream demo`]
#
# The node answers within seconds, before Spark is even installed. Then come Java, Spark (once),
# traffic, and the pipeline with its live table, until Ctrl-C.
set -eu

bin=$1
data_dir=$2
listen=$3
shift 3

home=${data_dir%/}-demo
mkdir -p "$home"
node_log=$home/node.log
# What the node of an earlier run said would be read before this one says anything.
rm -f "$node_log.out"
touch "$node_log.out"
# Another program may have the console's usual port.
console=${CONSOLE:-127.0.0.1:8080}
"${PYTHON:-python3}" -c 'import socket, sys
host, port = sys.argv[1].rsplit(":", 1)
with socket.socket() as one:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((host, int(port)))' "$console" 2>/dev/null || console=127.0.0.1:0
# In a separate session: Ctrl-C is for the pipeline, and the node ends after it.
setsid "$bin/millstream" broker --data-dir "$data_dir" --listen "$listen" --console "$console" \
    --pipeline "$home" >"$node_log.out" 2>"$node_log" &
node=$!
trap 'kill "$node" 2>/dev/null || true; wait "$node" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

while ! grep -q '^console on ' "$node_log.out"; do
    if ! kill -0 "$node" 2>/dev/null; then
        cat "$node_log" >&2
        if grep -q 'port is in use' "$node_log"; then
            "$bin/python" -m millstream.cli.port_holder "${listen##*:}" >&2
            echo "Stop it, or take another port: make run LISTEN=127.0.0.1:9093" >&2
        fi
        exit 1
    fi
    sleep 0.1
done
address=$(sed -n 's/^listening on //p' "$node_log.out")

url=$(sed -n 's/^console on //p' "$node_log.out")

ask=""
[ "$address" = 127.0.0.1:9092 ] || ask=" -b $address"
echo "Millstream on $address, data in $data_dir, log in $node_log. In a browser and another terminal, try:"
echo "  $url                 the console; $url/pipeline shows what the pipeline finds"
echo "  $bin/millstream topic create hello$ask"
echo "  echo 'my first record' | $bin/millstream produce hello$ask"
echo "  $bin/millstream consume hello -o beginning -n 1$ask"

PYTHON=${PYTHON:-python3} sh "$(dirname "$0")/prepare_machine.sh" pipeline
if ! [ "$bin/../installed-pipeline" -nt pyproject.toml ]; then
    echo "Installing what the pipeline needs, once: Spark (about 450 MB to download), Arrow (50 MB),"
    echo "Delta tables (50 MB), pandas and numpy (30 MB). The node keeps running."
    "$bin/python" -m pip install --constraint constraints.txt --editable '.[pipeline]' |
        grep --line-buffered -E '^(Downloading|Building|Installing|Successfully)|ERROR' || true
    "$bin/python" -c 'import pyspark, deltalake'
    touch "$bin/../installed-pipeline"
fi
"$bin/millstream" demo -b "$address" --home "$home" "$@"
