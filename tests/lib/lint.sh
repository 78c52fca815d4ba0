#!/bin/sh
# make lint: checks of the sources that do not run them. lint.pl and headers.sh
# are part of `make check`, too. Other tools are reported and skipped where they
# are not installed.
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

# Suppressed: casts of a field that is found by its offset; the logarithm of a
# sum that cppcheck regards as empty; a block that has its address before it.
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
# Suppressed: variables that tap.sh, which shellcheck does not read, sets or
# uses.
if have shellcheck; then
    # shellcheck disable=SC2046 # file names without blanks
    shellcheck -e SC1091,SC2154,SC2034 -S warning $(git ls-files '*.sh') .ci/run || bad=1
fi
[ $bad = 0 ] && echo "lint: clean"
exit $bad
