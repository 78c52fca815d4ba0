#!/bin/sh
# make check-gpu: every kernel of kernels/cuda on the GPU of this machine,
# against kernels/cpu; then again under compute-sanitizer where it is. Needs
# make, gcc, nvcc and sh alone, so it compiles only what the test needs, for the
# GPU that is there, into $BUILD.
set -eu
BUILD=${BUILD:-build/gpu}
mkdir -p "$BUILD"
PATH=$PATH:/usr/local/cuda/bin

flags='-D_GNU_SOURCE -Icommon -Ikernels -I.'
base='status dtype rng hash log memory num cpu terminal utf8'
jobs=$(getconf _NPROCESSORS_ONLN)

cat >"$BUILD/Makefile" <<END
cu := \$(wildcard kernels/cuda/*.cu)
cu_obj := \$(cu:kernels/cuda/%.cu=$BUILD/%.cu.o)
c := \$(wildcard kernels/*.c kernels/cpu/*.c) $(for f in $base; do
    printf 'common/base/%s.c ' "$f"; done) tests/unit/test_cuda.c
c_obj := \$(c:%.c=$BUILD/%.o)
isa_obj := \$(patsubst %.c,$BUILD/%.o,\$(wildcard kernels/cpu/isa/*.c))
all: $BUILD/libgpt-cuda.so $BUILD/test_cuda
$BUILD/libgpt-cuda.so: \$(cu_obj) $BUILD/common/base/status.o \\
    $BUILD/common/base/dtype.o
	nvcc -shared -cudart static -o \$@ \$^ -ldl
$BUILD/test_cuda: \$(c_obj) \$(isa_obj)
	gcc -fopenmp -o \$@ \$^ -ldl -lm
$BUILD/%.cu.o: kernels/cuda/%.cu
	nvcc -std=c++17 -O3 -lineinfo -arch=native -Xcompiler -fPIC,-Wall \\
	    -DGPT_CUDA_ARCHS='"native"' $flags -c -o \$@ \$<
$BUILD/kernels/cpu/isa/%.o: kernels/cpu/isa/%.c
	@mkdir -p \$(@D)
	gcc -std=c11 -O3 -fopenmp -DGPT_ISA=base $flags -c -o \$@ \$<
$BUILD/%.o: %.c
	@mkdir -p \$(@D)
	gcc -std=c11 -O2 -fPIC -fopenmp $flags -c -o \$@ \$<
END
make -s -j"$jobs" -f "$BUILD/Makefile" all

export GPT_PLUGIN_DIR="$BUILD" GPT_TEST_DEVICE=cuda
"$BUILD/test_cuda" >"$BUILD/test_cuda.tap" || {
    grep -v '^ok' "$BUILD/test_cuda.tap"
    exit 1
}
grep -v '^ok' "$BUILD/test_cuda.tap"
grep -q '^ok 2 ' "$BUILD/test_cuda.tap" || {
    echo "check-gpu: no GPU answers here; nothing was checked"
    exit 1
}
echo "check-gpu: every kernel agrees with kernels/cpu"
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 1 --quiet \
            "$BUILD/test_cuda" >"$BUILD/$tool.log" 2>&1 || {
            tail -30 "$BUILD/$tool.log"
            exit 1
        }
        echo "check-gpu: $tool is clean"
    done
else
    echo "check-gpu: compute-sanitizer is not installed: not run"
fi
