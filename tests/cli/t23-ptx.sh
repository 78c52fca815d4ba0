#!/bin/sh
# shellcheck disable=SC2154 # $top and $scratch are those of tap.sh
# The PTX that nvcc has made of the kernels, run by an interpreter
# (kernels/emu/ptx), gives what the CPU gives; and faults that
# tests/lib/ptx_faults.pl puts into it are found. PTX_DIR names a directory of
# NAME.ptx instead of what this build has made.
. "$(dirname "$0")/../lib/tap.sh"
unit=$BUILD/tests/unit/test_cuda.t
if [ ! -e "$BUILD/libgpt-cuda-emu.so" ]; then
    skip 'kernels are not emulated: this build had no compiler for C++'
    tap_done
fi
command -v perl >/dev/null || {
    skip 'there is no perl'
    tap_done
}

# One name for each file, of whatever architecture it is.
mkdir ptx
for file in "${PTX_DIR:-/dev/null}"/*.ptx "$BUILD"/cuda/*.keep/*.ptx; do
    [ -e "$file" ] || continue
    name=${file##*/}
    [ -e "ptx/${name%%.*}.ptx" ] || ln -s "$file" "ptx/${name%%.*}.ptx"
done
if [ ! -e ptx/flash_fwd_sm90a.ptx ]; then
    skip 'kernels for GPUs were not built: there is no PTX to run'
    tap_done
fi

run() { # directory section
    GPT_CUDA_PTX=$1 BUILD=$BUILD "$unit" "$2"
}
eight() { # directory; from where the test's golden numbers are found
    (cd "$top" && export BUILD &&
        GPT_CUDA_PTX=$1 "$BUILD/tests/unit/test_fp8.t")
}
all='ptx-hopper ptx-attention ptx-rows ptx-experts'
if [ -n "${GPT_TEST_SWEEP:-}" ]; then
    all="$all hopper attention rows embeddings flat more experts latent"
fi
for section in $all; do
    expect 0 "PTX gives what the CPU gives: $section" \
        run "$scratch/ptx" "$section"
done

expect 0 'PTX gives what the CPU gives: eight bits' eight "$scratch/ptx"
# The same with the instructions for eight bits that 8.9 and later have.
mkdir with-eight
for file in "${PTX_DIR:-/dev/null}"/89/fp8.ptx \
    "$BUILD"/cuda/fp8.keep/fp8.compute_89.ptx; do
    [ -e "$file" ] && grep -q 'cvt.*e4m3x2' "$file" || continue
    ln -sf "$scratch"/ptx/*.ptx with-eight
    ln -sf "$file" with-eight/fp8.ptx
    expect 0 "PTX gives what the CPU gives: instructions for eight bits" \
        eight "$scratch/with-eight"
done

# ---- faults ----
# Prints what is wrong first: a failed comparison, or the interpreter's message.
first_wrong() { # directory section
    run "$1" "$2" 2>&1 | awk '
        /^Bail out/ { bad = 1; print; exit }
        bad && !/^#/ { exit }
        /^not ok/ { bad = 1 }
        bad { print }
        END { exit !bad }'
}
perl "$top/tests/lib/ptx_faults.pl" >faults || exit 1
while IFS='	' read -r name file section says; do
    mkdir "$name"
    ln -s "$scratch"/ptx/* "$name"
    rm "$name/$file.ptx"
    expect 0 "a fault: $name" perl "$top/tests/lib/ptx_faults.pl" "$name" \
        "ptx/$file.ptx" "$name/$file.ptx"
    expect 0 'is found' first_wrong "$scratch/$name" "$section"
    [ -z "$says" ] || out_has "$says"
    rm -r "$name"
done <faults
tap_done
