# shellcheck shell=sh
# Sourced by the scripts of this folder: where CUDA's compiler, headers and
# libraries are. Those that came with PyTorch's packages are used, too: on some
# machines cuBLASLt and NCCL are nowhere else.
BUILD=${BUILD:-build/gpu}
case $BUILD in
/*) ;;
*) BUILD=$PWD/$BUILD ;;
esac
GPT_TEST_DEVICE=${GPT_TEST_DEVICE:-cuda}
PATH=$PATH:/usr/local/cuda/bin
unset GPT_PLUGIN_DIR
for gpt_site in $(python3 -c 'import site; print(*site.getsitepackages())' \
    2>/dev/null); do
    for gpt_dir in "$gpt_site"/nvidia/*/; do
        [ ! -d "$gpt_dir/include" ] || CPATH=${CPATH:+$CPATH:}${gpt_dir}include
        [ ! -d "$gpt_dir/lib" ] ||
            LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${gpt_dir}lib
    done
done
export BUILD GPT_TEST_DEVICE PATH
[ -z "${CPATH:-}" ] || export CPATH
[ -z "${LD_LIBRARY_PATH:-}" ] || export LD_LIBRARY_PATH
