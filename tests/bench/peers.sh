#!/bin/sh
# `make bench-peers`: installs the programs that this project is compared with
# into GPT_PEERS_DIR (build/peers), a folder of their own, runs every
# peers_*.sh, which time them and this project in turns, and prints one table of
# medians in the form of RESULTS.md. What cannot be installed is named and left
# out. Words choose scripts: sh tests/bench/peers.sh text train
#
# A module that the Python (GPT_ORACLE_PYTHON, or python3) has already is not
# installed again. GPT_PEERS_OFFLINE=1 installs nothing.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
peers=${GPT_PEERS_DIR:-$build/peers}
python=${GPT_ORACLE_PYTHON:-python3}
mkdir -p "$peers" || exit 1
peers=$(cd "$peers" && pwd) || exit 1
PYTHONPATH=$peers${PYTHONPATH:+:$PYTHONPATH}
GPT_PEERS_TABLE=$peers/table.md
export PYTHONPATH GPT_PEERS_TABLE
export GPT_PEERS_DIR="$peers" GPT_ORACLE_PYTHON="$python" BUILD="$build"

has_module() { # module; looks without running it, which takes PyTorch seconds
    "$python" -c "import importlib.util as u, sys
sys.exit(u.find_spec('$1') is None)" 2>/dev/null
}

install_module() { # module
    has_module "$1" && return
    if [ -n "${GPT_PEERS_OFFLINE:-}" ]; then
        echo "# absent: $1 (GPT_PEERS_OFFLINE is set)"
    elif ! "$python" -m pip install --quiet --target "$peers" "$1" \
        >"$peers/$1.log" 2>&1 || ! has_module "$1"; then
        echo "# absent: $1 (see $peers/$1.log)"
    fi
}

version() { # module
    "$python" -c "import importlib.metadata as m; print(m.version('$1'))" \
        2>/dev/null || echo absent
}

wanted="$*"
runs() { # name of a script
    [ -z "$wanted" ] || case " $wanted " in *" $1 "*) ;; *) false ;; esac
}

modules='numpy torch transformers tokenizers tiktoken gigatoken sentencepiece
    safetensors'
for module in $modules; do
    install_module "$module"
done
# The script of a peer that has to be compiled does that by itself.
[ -n "${GPT_PEERS_OFFLINE:-}" ] || export GPT_PEERS_INSTALL=1
: >"$GPT_PEERS_TABLE"
for script in tests/bench/peers_*.sh; do
    name=${script##*/peers_}
    runs "${name%.sh}" || continue
    echo "== ${script##*/}"
    sh "$script" || echo "# failed: $script"
done

# The processor's name alone says little in a virtual machine.
flags=$(grep -m1 '^flags' /proc/cpuinfo | tr ' ' '\n' | grep -E \
    '^(avx2|fma|avx512f|avx512_bf16|avx512_vnni|amx_bf16|amx_int8)$' |
    sort | paste -s -d' ')
echo
echo "$(date +%Y-%m-%d):$(grep -m1 '^model name' /proc/cpuinfo | cut -d: -f2)," \
    "$(nproc) cores," \
    "${flags:-no vectors of these kinds}"
for module in $modules; do
    printf '%s %s; ' "$module" "$(version "$module")"
done
echo
echo
echo '| what | program | median (least-most) | ours is faster by |'
echo '| --- | --- | --- | --- |'
cat "$GPT_PEERS_TABLE"
