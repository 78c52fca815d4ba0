#!/bin/sh
# Runs unit tests on a processor with AVX-512, which Bochs emulates:
#     sh tests/emu/avx512.sh [TEST...]
# A test is a program of build/tests/unit. The script needs bochs (with its rfb
# display), busybox-static, isolinux, xorriso, cpio and a kernel: KERNEL, or one
# in /boot. Linux starts in a few minutes; a test takes about a hundred times as
# long as on this machine.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
[ $# -gt 0 ] || set -- test_pretok test_kernels_isa
kernel=${KERNEL:-$(find /boot -name 'vmlinuz*' 2>/dev/null | sort | tail -n 1)}
isolinux=/usr/lib/ISOLINUX/isolinux.bin
modules=/usr/lib/syslinux/modules/bios
for need in "$kernel" "$isolinux" "$modules/ldlinux.c32" /bin/busybox \
    /usr/share/bochs/BIOS-bochs-latest; do
    [ -f "$need" ] || { echo "# SKIP no ${need:-kernel (KERNEL)}"; exit 0; }
done
for need in bochs xorriso cpio; do
    command -v $need >/dev/null || { echo "# SKIP no $need"; exit 0; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/gpt-avx512.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" \
    "$root/top/tests" "$root/top/$build/tests/unit" "$work/cd"

cp /bin/busybox "$root/bin/"
for word in sh mount cat mkdir poweroff grep; do
    ln -s busybox "$root/bin/$word"
done
cp -r tests/golden "$root/top/tests/"
for test; do
    cp "$build/tests/unit/$test.t" "$root/top/$build/tests/unit/"
    ldd "$build/tests/unit/$test.t" | grep -o '/[^ ]*' | sort -u |
        while read -r lib; do
            mkdir -p "$root${lib%/*}"
            cp -L "$lib" "$root$lib"
        done
done
cat >"$root/init" <<END
#!/bin/sh
mount -t proc proc /proc
mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
echo "== flags: \$(grep -o -m1 'avx512[a-z]*' /proc/cpuinfo | cat)"
cd /top
export BUILD='$build' OMP_NUM_THREADS=1
for test in $*; do
    echo "== \$test"
    $build/tests/unit/\$test.t
    echo "== status \$?"
done
echo '== end'
poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/cd/initrd"

cp "$kernel" "$work/cd/linux"
cp "$isolinux" "$modules/ldlinux.c32" "$work/cd/"
cat >"$work/cd/isolinux.cfg" <<'END'
default linux
prompt 0
label linux
    kernel linux
    append initrd=initrd console=ttyS0 quiet mitigations=off noxsaves clearcpuid=xsaves,xsavec
END
xorriso -as mkisofs -quiet -o "$work/cd.iso" -b isolinux.bin -c boot.cat \
    -no-emul-boot -boot-load-size 4 -boot-info-table "$work/cd"

cat >"$work/bochsrc" <<END
megs: 1024
cpu: model=corei7_skylake_x, count=1, ips=50000000, reset_on_triple_fault=0
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path="$work/cd.iso", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev="$work/serial"
display_library: rfb, options="timeout=0"
clock: sync=none
log: $work/log
sound: waveoutdrv=dummy
panic: action=fatal
error: action=ignore
END
# Debian's Bochs starts in its debugger, which waits for a command.
(cd "$work" && echo c | bochs -q -f bochsrc >out 2>&1) || true
tr -d '\r' <"$work/serial" >"$work/report"
sed -n '/^==/,$p' "$work/report"
grep -q '^== end' "$work/report" && ! grep -q '^not ok\|^== status [^0]' \
    "$work/report"
