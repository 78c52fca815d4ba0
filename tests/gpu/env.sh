# shellcheck shell=sh
# Finds CUDA's compiler, headers and libraries; the scripts of this folder
# source it. It also finds those in PyTorch's packages, because some machines
# have cuBLASLt and NCCL only there, and the copies that carry.sh made in
# .carry.
BUILD=${BUILD:-build/gpu}
case $BUILD in
/*) ;;
*) BUILD=$PWD/$BUILD ;;
esac
GPT_TEST_DEVICE=${GPT_TEST_DEVICE:-cuda}
PATH=$PATH:/usr/local/cuda/bin
unset GPT_PLUGIN_DIR
gpt_paths() { # headers libraries: more places to look
    if [ -d "$1" ]; then
        export C_INCLUDE_PATH="${C_INCLUDE_PATH:+$C_INCLUDE_PATH:}$1"
        export CPLUS_INCLUDE_PATH="${CPLUS_INCLUDE_PATH:+$CPLUS_INCLUDE_PATH:}$1"
    fi
    [ -d "$2" ] || return 0
    export LIBRARY_PATH="${LIBRARY_PATH:+$LIBRARY_PATH:}$2"
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$2"
}
gpt_paths "$PWD/.carry/include" "$PWD/.carry/lib"
for gpt_site in $(python3 -c 'import site; print(*site.getsitepackages())' \
    2>/dev/null); do
    for gpt_dir in "$gpt_site"/nvidia/*; do
        gpt_paths "$gpt_dir/include" "$gpt_dir/lib"
    done
done
export BUILD GPT_TEST_DEVICE PATH
