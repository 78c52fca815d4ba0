#!/bin/sh
# headers.sh [ROOT]: every header of common, kernels and cmd compiles alone, and
# all of them in one file. Left out: .cuh, which nvcc compiles, and kernels/emu,
# whose headers are parts of its cuda.h and nccl.h.
set -u
CC=${CC:-gcc}
cd "${1:-$(dirname "$0")/../..}" || exit 1
all=$(mktemp "${TMPDIR:-/tmp}/headers.XXXXXX") || exit 1
trap 'rm -f "$all"' EXIT
syntax="-std=c11 -fopenmp -D_GNU_SOURCE -DGPT_ISA=base -Icommon -Ikernels -I. -Wall
    -Wextra -fsyntax-only -x c"
bad=0
headers=$(find common kernels cmd -name '*.h' ! -path 'kernels/emu/*' \
    2>/dev/null | sort)
for header in $headers; do
    echo "#include \"$header\""
done >"$all"
# shellcheck disable=SC2086 # a word list
$CC $syntax "$all" || {
    echo "headers: not all in one file"
    bad=1
}
# As the only include of a file: as the file itself, it would have no guard.
# shellcheck disable=SC2086,SC2016 # a word list; for the inner shell
printf '%s\n' $headers | xargs -r -n 8 -P "$(getconf _NPROCESSORS_ONLN)" \
    sh -c 'bad=0
        for header; do
            echo "#include \"$header\"" | '"$CC"' '"$(echo $syntax)"' - || {
                echo "headers: $header does not compile alone"
                bad=1
            }
        done
        exit $bad' sh || bad=1
[ $bad = 0 ] && echo 'headers: alone and together'
exit $bad
