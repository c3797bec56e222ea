#!/bin/sh
# Installs the wheel of a folder into a bare environment and follows the first minutes of the README.
#
#   scripts/try_wheel.sh PYTHON FOLDER
set -eu
python=$1
folder=$(cd "$2" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/environment"
PATH="$place/environment/bin:/usr/bin:/bin"
unset PYTHONPATH
cd "$place"
# Wheels only: nothing may need a compiler.
pip install --quiet --only-binary :all: --find-links "$folder" millstream
millstream --version
millstream run --topic orders:3 -- sh -euc '
    printf "alice:5\nbob:7\nalice:2\n" | millstream produce orders -K :
    test "$(millstream consume orders -e -f "%v\n" | sort | tr -d "\n")" = 257
    millstream topic describe orders
'
millstream dev --port 0 --json > ready & node=$!
until [ -s ready ]; do sleep 0.05; kill -0 $node; done
address=$(sed 's/.*"bootstrap": "\([^"]*\)".*/\1/' ready)
millstream consume example -e -b "$address"
kill -INT $node
wait $node
echo "works with $(python --version)"
