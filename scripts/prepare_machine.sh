#!/bin/sh
# Make sure the machine has what `make run` (a node, then the pipeline) or `make test` needs.
#
#   scripts/prepare_machine.sh run|pipeline|test
#
# As root on Debian the missing packages are installed; anywhere else they are named
# together with the command that installs them, and the script fails.
set -eu

missing=""
need() { # need PACKAGE COMMAND...: the package is missing if the command fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Millstream needs Python 3.11 or newer as $python (or set PYTHON=/path/to/python3.11)" >&2
    exit 1
fi
need python3-venv "$python" -c 'import ensurepip, venv'
need gcc command -v cc
# Without a compiler and these headers the record loops run in Python: slower, not wrong.
need python3-dev "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(
    os.path.join(sysconfig.get_path("include"), "Python.h")))'
java_is_new_enough() { # Spark needs 17; version 8 calls itself 1.8
    version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ]
}
rsyslog_writes_to_kafka() { # the module is in a separate package
    ls /usr/lib/*/rsyslog/omkafka.so
}
if [ "$1" = pipeline ]; then
    need default-jre-headless java_is_new_enough
fi
if [ "$1" = test ] && [ "${MILLSTREAM_SKIP_JAVA:-}" != 1 ]; then
    need openjdk-17-jdk-headless command -v javac
    need maven command -v mvn
    need burrow command -v Burrow
    need zookeeper test -e /usr/share/java/zookeeper.jar
fi
if [ "$1" = test ]; then
    need kcat command -v kcat
    need openssl command -v openssl
    # Reads the metrics, and judges the alert rules.
    need prometheus command -v prometheus
    # The browser that opens the console's pages.
    need chromium command -v chromium
    need fonts-dejavu-core test -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
    need rsyslog-kafka rsyslog_writes_to_kafka
fi
if [ "$1" = test ] && [ "$(id -u)" = 0 ]; then
    # Networks that are cut and disks that lose power are made by root alone.
    need iproute2 command -v tc
    need e2fsprogs command -v mkfs.ext4
    need mount command -v losetup
fi

[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086  # the list is meant to be split
    size=$(apt-get install --assume-no --no-install-recommends $missing 2>/dev/null |
        sed -n 's/^Need to get \(.*\) of archives.*/\1/p') || true
    echo "installing$missing: ${size:-an unknown size} to download" >&2
    # shellcheck disable=SC2086  # the list is meant to be split
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "this machine lacks:$missing" >&2
    echo "on Debian or Ubuntu: sudo apt-get install -y$missing" >&2
    exit 1
fi
