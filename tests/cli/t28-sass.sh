#!/bin/sh
# The machine code of the flash kernels, of each architecture, keeps the rules of
# tests/lib/sass.pl. The rules themselves are tried on code that breaks each one.
# The table is $BUILD/cuda/sass.txt; that of the last change is
# tests/bench/sass.txt. NVDISASM names the disassembler.
. "$(dirname "$0")/../lib/tap.sh"
command -v perl >/dev/null || {
    skip 'there is no perl'
    tap_done
}

look() { # file arch listing
    perl "$top/tests/lib/sass.pl" "$1" "$2" <"$3"
}

# A kernel for Hopper with one loop. $1: instructions between the two waits; $2:
# between products; $3: after all.
listing() {
    echo '.text._Z13flash_forwardILb0ELi64E6__halfEv10attn_shape:'
    {
        echo 'USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0x50'
        echo 'HGMMA.64x128x16.F32 R8, gdesc[UR4], !UPT'
        printf '%b' "$2"
        echo 'HGMMA.64x64x16.F32 R8, R72, gdesc[UR8]'
        echo 'WARPGROUP.DEPBAR.LE gsb0, 0x1'
        printf '%b' "$1"
        echo 'WARPGROUP.DEPBAR.LE gsb0, 0x0'
        echo 'HGMMA.64x64x16.F32 R8, R72, gdesc[UR8]'
        printf '%b' "$3"
        echo 'EXIT'
        echo 'USETMAXREG.DEALLOC.CTAPOOL 0x20'
        echo 'IADD3 R19, R4, 0x1, RZ'
        echo 'EXIT'
    } | sed 's|.*|        /*0010*/  & ;|'
}
repeat() { # count text
    awk -v n="$1" -v s="$2" 'BEGIN { while (n--) printf "%s\\n", s }'
}
exps=$(repeat 64 'MUFU.EX2 R8, R8')
store='STG.E.128 desc[UR4][R2.64], R8\n'

listing "$exps" '' "$store" >good
expect 0 'good code' look f 90a good
fault() { # what message listing
    expect 1 "$1" look f 90a "$3"
    out_has "$2"
}
listing '' '' "$store$exps" >late
fault 'exponentials after the wait' '0 exponentials beside' late
listing "$exps" '' 'STG.E.U8 desc[UR4][R2.64], R8\n' >bytes
fault 'bytes stored one by one' 'narrow is 1, the most is 0' bytes
listing "$exps" "$(repeat 32 'BSSY B0, `(.L_x_1)')" "$store" >branches
fault 'a branch for each element' 'branches is 32, the most is 12' branches
listing "$exps" "$(repeat 7 'R2UR UR4, R3')" "$store" >moves
fault 'descriptors from vector registers' 'r2ur is 7, the most is 6' moves
listing "$exps" '' "STL [R1], R8\\n$store" >spills
fault 'a spill' 'local is 1, the most is 0' spills
listing "$exps" '' "IADD3 R80, R4, 0x1, RZ\\n$store" >registers
fault 'a register that the warp does not have' 'sums uses register 80 of 80' \
    registers
expect 1 'no code at all' look f 90a /dev/null

# ---- the model of time ----

# A loop of two products: 64 and 32 cycles; 8 exponentials take 64.
{
    echo '.text._Z13flash_forwardILb0ELi64E6__halfEv10attn_shape:'
    echo '.L_x_1:'
    {
        echo 'HGMMA.64x128x16.F32 R8, gdesc[UR4], !UPT'
        echo 'HGMMA.64x64x16.F32 R8, R72, gdesc[UR8]'
        repeat 8 'MUFU.EX2 R8, R8' | sed 's/\\n/\n/g'
        echo 'WARPGROUP.DEPBAR.LE gsb0, 0x0'
        echo '@P0 BRA `(.L_x_1)'
        echo 'EXIT'
    } | sed 's|.*|        /*0010*/  & ;|'
} >loop
expect 0 'the time of a loop' perl "$top/tests/lib/sass_time.pl" f 90a <loop
check 'is that of its products' \
    awk '/^f / { exit !($6 == 96 && $11 == 64 && $12 == 96 && $13 == 100) }' \
    "$scratch/out"

# ---- what was built ----
PATH=$PATH:/usr/local/cuda/bin
disassembler=${NVDISASM:-nvdisasm}
set -- "$BUILD"/cuda/flash_*.keep/*.cubin
if [ ! -e "$1" ]; then
    skip 'kernels for GPUs were not built: their machine code is not looked into'
    tap_done
fi
command -v "$disassembler" >/dev/null || {
    skip 'there is no nvdisasm (pip install nvidia-cuda-nvdisasm; NVDISASM)'
    tap_done
}
table=$BUILD/cuda/sass.txt
printf '%-16s %-6s %-13s %4s %-4s %-5s %5s %5s %5s %5s %5s %5s %5s %5s %5s\n' \
    file arch kernel d type drop mma besid gap bran r2ur copy sums narr local >"$table"
for cubin; do
    name=${cubin##*/}
    name=${name%.cubin}
    case $name in
    *compute_*) arch=${name##*compute_} ;;
    *) arch=90a ;; # nvcc does not name the only architecture
    esac
    "$disassembler" -c "$cubin" >code || echo 'no code' >code
    expect 0 "${name%%.*} for sm_$arch" look "${name%%.*}" "$arch" code
    grep -v '^sass:' "$scratch/out" >>"$table"
    case $arch in
    80 | 90a)
        perl "$top/tests/lib/sass_time.pl" "${name%%.*}" "$arch" <code |
            sed "$([ ! -s times.txt ] || echo 1d)" >>times.txt
        ;;
    esac
done
cp times.txt "${table%.txt}_time.txt"
# The backward is bound by what goes to and from shared memory, as FlashAttention-3's is
# with heads of 64; dK takes dS from there, which a model of one part alone counts
# against it, and an H100 does not.
check 'without dropout little but tensor cores and exponentials takes longest' \
    awk 'NR > 1 && $1 ~ /sm90a/ && $5 == "-" &&
         $13 < ($2 != "flash_backward" ? 95 : $3 == 64 ? 79 : 90) { print; bad = 1 }
         END { exit NR < 2 || bad }' times.txt
check 'ptxas serialises no product' \
    sh -c "! grep -hi 'C75[0-9][0-9]\|serializ' '$BUILD'/cuda/flash_*.ptxas"
for file in sass.txt sass_time.txt; do
    cmp -s "$BUILD/cuda/$file" "$top/tests/bench/$file" ||
        echo "# $BUILD/cuda/$file differs from tests/bench/$file: another" \
            "compiler, or kernels have changed"
done
tap_done
