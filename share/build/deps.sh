#!/bin/sh
# Installs the Debian packages that building, testing and the demonstration
# need and that are missing, saying which. Does nothing when all are there or
# when this is no Debian machine. Where it may not install it says what to type;
# that is an error only for packages that nothing works without.
set -eu

needed="gcc libc6-dev make libcjson-dev perl"
useful="liblzma-dev zlib1g-dev libzstd-dev libdnnl-dev libgloo-dev g++ mandoc"
useful="$useful xz-utils libmicrohttpd-dev curl"

command -v dpkg-query >/dev/null 2>&1 || exit 0
missing() {
    for p in "$@"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null |
            grep -q ' installed' || printf ' %s' "$p"
    done
}
# shellcheck disable=SC2086 # word lists
all=$(missing $needed $useful)
[ -n "$all" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root=sudo
else
    echo "deps: missing packages; as root, run: apt-get install$all" >&2
    # shellcheck disable=SC2086
    [ -z "$(missing $needed)" ]
    exit
fi
echo "deps: installing$all" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$as_root apt-get update -qq >&2 && $as_root apt-get install -y -qq \
    --no-install-recommends $all >&2
