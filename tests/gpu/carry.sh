#!/bin/sh
# usage: carry.sh [DIR]; copies cJSON and Gloo of this machine, and the
# libraries that they need, into DIR (.carry). `make check-gpu` and `make
# bench-gpu` find them there, also on a machine to which the folder was copied.
# With Gloo several ranks can share the GPU.
set -eu
dir=${1:-.carry}
mkdir -p "$dir/include" "$dir/lib"

needs() { # library: it, and all that it needs but the system's own
    echo "$1"
    ldd "$1" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' |
        grep -vE '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so'
}

for name in cjson gloo; do
    at=$(${CC:-gcc} -print-file-name="lib$name.so")
    [ -d "/usr/include/$name" ] && [ -f "$at" ] || {
        echo "carry: $name is not installed here" >&2
        continue
    }
    cp -r "/usr/include/$name" "$dir/include/"
    for so in $(needs "$at"); do
        cp -L "$so" "$dir/lib/"
        soname=$(objdump -p "$so" | sed -n 's/^ *SONAME *//p')
        [ "${so##*/}" = "$soname" ] || cp -L "$so" "$dir/lib/$soname"
    done
done
ls "$dir/lib"
