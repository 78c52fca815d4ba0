#!/bin/sh
# usage: ptxas.sh BUILD; prints the reports of nvcc and ptxas as a table: for
# each file and architecture the kernels, the most registers and bytes of static
# shared memory of one kernel, and spills. Fails when a compiler warned, a
# kernel spills (memory traffic that the source does not show), wgmma is
# serialized, or a kernel for Hopper lacks Hopper's instructions: cuobjdump
# counts those, if it is installed (CUOBJDUMP names it).
set -u
dir=${1:-build}/cuda
printf '%-16s %-9s %7s %9s %7s %6s\n' file arch kernels registers shared spills
bad=0
for f in "$dir"/*.ptxas; do
    [ -f "$f" ] || { echo "ptxas: no report in $dir"; exit 1; }
    if grep -i 'warning\|potential performance loss' "$f"; then
        echo "ptxas: $f: a warning"
        bad=1
    fi
    awk -v file="$(basename "$f" .ptxas)" '
        /Compiling entry function/ { arch = $NF; gsub(/[^a-z0-9_]/, "", arch)
                                     kernels[arch]++ }
        /spill stores/ { spills[arch] += $(NF - 7) + $(NF - 3) }
        /Used [0-9]+ registers/ {
            for (i = 1; i < NF; i++) {
                if ($i == "Used" && $(i + 1) > registers[arch])
                    registers[arch] = $(i + 1)
                if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/ &&
                    $i > shared[arch])
                    shared[arch] = $i
            }
        }
        END {
            for (a in kernels) {
                printf "%-16s %-9s %7d %9d %7d %6d\n", file, a, kernels[a],
                    registers[a], shared[a], spills[a]
                bad += spills[a] > 0
            }
            exit bad > 0
        }' "$f" | sort || bad=1
    grep -h 'spill stores' "$f" | grep -qv ' 0 bytes spill stores, 0 bytes' &&
        { echo "ptxas: $f: a kernel spills"; bad=1; }
done

# The purpose of the files for Hopper: asynchronous products and copies.
dump=${CUOBJDUMP:-cuobjdump}
PATH=$PATH:/usr/local/cuda/bin
for f in "$dir"/*_sm90a.o; do
    [ -f "$f" ] || continue
    command -v "$dump" >/dev/null || {
        echo "ptxas: no cuobjdump: $f is not looked into"
        continue
    }
    "$dump" --dump-sass "$f" | awk -v file="$(basename "$f" .o)" '
        / HGMMA/ { products++ }
        / UTMALDG/ { copies++ }
        END {
            printf "%-16s %d HGMMA, %d UTMALDG\n", file, products, copies
            exit !products || !copies
        }' || bad=1
done
[ $bad = 0 ] && echo "ptxas: no warning, no spill"
exit $bad
