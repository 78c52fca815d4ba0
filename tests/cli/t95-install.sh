#!/bin/sh
# Installs into a DESTDIR: all files are there, work, and can be uninstalled.
. "$(dirname "$0")/../lib/tap.sh"
unset MAKEFLAGS MAKELEVEL MFLAGS
build=${BUILD#"$top"/}
root="$scratch/its root"

run_make() {
    make -C "$top" CUDA=0 BUILD="$build" PREFIX=/usr DESTDIR="$root" "$@"
}

# An installed program finds the presets beside it, without any setting.
knows_presets() {
    unset GPT_DATADIR
    for f in "$top"/share/presets/*.conf; do
        name=$(basename "$f" .conf)
        "$root/usr/bin/gpt-train" --config "$name" --print-config >config ||
            return 1
        grep -q '# config$' config || return 1
    done
}

check 'make install' run_make install
for source in "$top"/cmd/*/main.c; do
    p=gpt-$(basename "${source%/main.c}")
    expect 0 "$p runs from there" "$root/usr/bin/$p" --version
    for f in "share/man/man1/$p.1" "share/bash-completion/completions/$p" \
        "share/zsh/site-functions/_$p" \
        "share/fish/vendor_completions.d/$p.fish"; do
        check "$f is there" test -s "$root/usr/$f"
    done
done
for page in "$top"/man/*.[57]; do
    check "${page##*/} is there" \
        test -s "$root/usr/share/man/man${page##*.}/${page##*/}"
done
if [ -f "$top/cmd/train/main.c" ]; then
    check 'presets are found' knows_presets
fi
check 'make uninstall' run_make uninstall
check 'nothing is left' sh -c "! find '$root' -type f | grep ."

# ---- other builds ----
late=ZLIB=1
! gpt-train --version | grep -q ' zlib' || late=ZLIB=0
expect 2 'a setting that comes after its build' run_make -n "$late"
err_has "was made without $late: 'make clean' first"
expect 2 'a build in a folder with a space' \
    make -C "$top" -n CUDA=0 BUILD="$scratch/its build"
err_has 'has a space'
expect 2 'a build in no folder' make -C "$top" -n CUDA=0 BUILD=
err_has 'BUILD is empty'
expect 2 'a build where no folder can be made' \
    make -C "$top" CUDA=0 BUILD=/dev/null/build
err_has 'name another folder, as in make BUILD='
other() {
    make -C "$top" CUDA=0 BUILD="$scratch/other" "$@" \
        "$scratch/other/common/base/num.o"
}
has_zlib() { grep -q HAVE_ZLIB "$scratch/other/config.mk"; }
if printf '#include <zlib.h>\n' | gcc -E - >/dev/null 2>&1; then
    expect 0 'a build without zlib' other ZLIB=0
    check 'which is left out' eval '! has_zlib'
    expect 0 'another setting after make clean, in one command' other -j3 clean
    check 'in as many jobs' sh -c '! grep jobserver err'
    check 'is taken' has_zlib
    sed 's/ -DGPT_HAVE_ZLIB=1//' "$scratch/other/config.mk" >config.mk
    mv config.mk "$scratch/other/config.mk"
    expect 0 'what was installed since' other deps
    check 'is found' has_zlib
    out_has 'compiling again'
    out_has '-DGPT_HAVE_ZLIB=1'
    touch "$scratch/other/libgpt.a"
    expect 0 'a library that is newer than all sources' make -C "$top" -n \
        CUDA=0 BUILD="$scratch/other" lib
    out_has "-c -o $scratch/other/common/base/crc.o" # its objects are gone
else
    skip 'zlib is not installed'
fi
away=$scratch/away
mkdir "$away" "$away/build"
cp "$BUILD/gpt-train" "$away/build"
preset() { (unset GPT_DATADIR && "$away/build/gpt-train" --print-config "$@"); }
if preset --config gpt2-tiny >/dev/null 2>&1; then
    skip 'presets are installed on this machine'
else
    expect 4 'a program without presets' preset --config gpt2-tiny
    err_has 'no presets were found either: GPT_DATADIR names'
    expect 0 'a build folder elsewhere' make -C "$top" CUDA=0 \
        BUILD="$away/build" "$away/build/presets"
    expect 0 'has the presets' preset --config gpt2-tiny
fi
compiles() { # ISAS: the command that would compile the list of machine code
    run_make -n -W kernels/cpu/choose.c "$@" "$build/kernels/cpu/choose.o"
}
expect 0 'a build with all machine code' compiles ISAS=avx2
out_has GPT_HAVE_ISA_avx2
expect 0 'and one without' compiles ISAS=
check 'names none' sh -c '! grep -q GPT_HAVE_ISA out'
for left in FEW= PAIRS= PAIRS=amx FEW=amx; do
    expect 0 "$left leaves out what needs it" compiles "$left"
    check 'AMX, which needs both, and AVX512-BF16' sh -c '! grep -q GPT_HAVE_ISA_amx out'
done
expect 0 'a source that is compiled for two sets has changed' run_make -n \
    -W kernels/cpu/few/bytes.c
out_has "-c -o $build/kernels/cpu/few/bytes/avx2.o"
check 'none of its objects is made for a .d file' \
    sh -c '! grep -F .d.o out err'
expect 0 'a header that programs and plugins share has changed' run_make -n \
    -W kernels/collectives.h "$build/kernels/backend.o" "$build/emu/cuda.o"
out_has "-c -o $build/kernels/backend.o"
out_has "-c -o $build/emu/cuda.o"
if command -v clang >clang.where; then
    for set in base 'avx2 -mavx2 -mfma -mf16c' \
        'avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c'; do
        # shellcheck disable=SC2086 # flags are words
        expect 0 "clang takes vectors of ${set%% *}" clang -std=c11 \
            -fsyntax-only -D_GNU_SOURCE -I "$top" -I "$top/common" \
            -I "$top/kernels" -DGPT_ISA=$set "$top"/kernels/cpu/isa/*.c
    done
    for set in avx2 avx2vnni avx512 avx512vnni avx512bf16 amx; do
        expect 0 "clang can ask the processor for $set" clang -std=c11 \
            -fsyntax-only -D_GNU_SOURCE -I "$top/common" \
            -DGPT_HAVE_ISA_$set=1 "$top"/common/base/cpu*.c
    done
else
    skip 'there is no clang'
fi
tap_done
