#!/bin/sh
# make lint: what can be said about the sources without running them. lint.pl
# and headers.sh are part of `make check`, too; other tools are named and left
# out where they are not installed.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0
have() {
    command -v "$1" >/dev/null 2>&1 && return
    echo "lint: $1 is not installed: not checked"
    return 1
}

perl tests/lib/lint.pl || bad=1
sh tests/lib/headers.sh || bad=1

# Left out: casts of a field found by its offset; the logarithm of a sum that
# cppcheck takes for empty; a block whose address is kept in front of it.
if have cppcheck; then
    cppcheck --quiet --std=c11 --enable=warning,portability \
        --inline-suppr --error-exitcode=1 -j "$(getconf _NPROCESSORS_ONLN)" \
        --suppress=missingInclude --suppress=preprocessorErrorDirective \
        --suppress=invalidPointerCast --suppress=invalidFunctionArg \
        --suppress=pointerSize:common/base/memory.c \
        -D_GNU_SOURCE -DGPT_ISA=base -Icommon -Ikernels -I. \
        cmd common kernels/cpu || bad=1
fi
if have mandoc; then
    for page in man/*.[157]; do
        [ -f "$page" ] || continue
        mandoc -Tlint -Wwarning "$page" || bad=1
    done
fi
# Left out: what tap.sh, which is not followed, sets and uses.
if have shellcheck; then
    # shellcheck disable=SC2046 # file names without blanks
    shellcheck -e SC1091,SC2154,SC2034 -S warning $(git ls-files '*.sh') .ci/run || bad=1
fi
[ $bad = 0 ] && echo "lint: clean"
exit $bad
