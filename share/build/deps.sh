#!/bin/sh
# Installs the Debian packages that building, testing and the demonstration
# need and that are missing, saying which. Does nothing when all are there or
# when this is no Debian machine; says what to type when it may not install.
set -eu

packages="gcc libc6-dev make libcjson-dev liblzma-dev libdnnl-dev mandoc perl
xz-utils"

command -v dpkg-query >/dev/null 2>&1 || exit 0
missing=
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q ' installed' ||
        missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root=sudo
else
    echo "deps: missing packages; as root, run: apt-get install$missing" >&2
    exit 1
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # word lists
$as_root apt-get update -qq && $as_root apt-get install -y -qq \
    --no-install-recommends $missing
