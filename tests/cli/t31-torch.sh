#!/bin/sh
# Files of torch.save() in gpt-reshape: what they hold, as Hugging Face sources,
# and files that were made to harm. The readers themselves are tested in
# tests/unit/test_torch.c.
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden
shows() { # regular expression
    check "output has '$1'" grep -qE -e "$1" "$scratch/out"
}

# ---- inspect and globals ----
for file in zip zip5 legacy; do
    expect 0 "inspect $file.pt" gpt-reshape inspect "$golden/torch/$file.pt"
    shows 'views.turned  *F32   \[6, 4\]'
    shows 'types.3  *BF16  \[3\]'
    shows 'args.num_layers  *2'
    shows 'args.params_dtype  *"torch.bfloat16"'
    shows 'number  *2.25'
    expect 0 "globals $file.pt" gpt-reshape globals "$golden/torch/$file.pt"
    out_has 'argparse.Namespace'
    out_has 'torch._utils._rebuild_tensor_v2'
done
expect 0 'as JSON' gpt-reshape inspect "$golden/torch/legacy.pt" --json
out_has '"container":"legacy"'
out_has '"name":"views.turned","dtype":"F32","shape":[6,4]'
out_has '"args.norm":1e-05'
expect 0 'names as JSON' gpt-reshape globals "$golden/torch/zip.pt" --json
out_has '"torch.BFloat16Storage"'
printf '\200\002cos\nsystem\nX\004\000\000\000true\205R.' >evil.pt
expect 0 'a pickle that would run a command' gpt-reshape globals evil.pt
check 'names it' grep -qx os.system out
expect 0 'and is shown' gpt-reshape inspect evil.pt
out_has 'os.system(true)'
expect 3 'globals of safetensors' gpt-reshape globals \
    "$golden/hf/model.safetensors"
err_has 'this is no file of torch.save()'
expect 2 'globals of nothing' gpt-reshape globals
expect 4 'globals of no file' gpt-reshape globals none.pt

# ---- pytorch_model.bin ----
bin=$golden/hf_bin
expect 0 'what is in safetensors' gpt-reshape --load-path "$golden/hf" \
    --save-path a
expect 0 'from shards of torch.save()' gpt-reshape --load-path "$bin" \
    --save-path b --verify
check 'is the same' diff -r a b
expect 0 'inspect the directory' gpt-reshape inspect "$bin"
out_has 'pytorch_model-00002-of-00002.bin'
mkdir single
cp "$bin/config.json" single
cp "$bin/pytorch_model-00002-of-00002.bin" single/pytorch_model.bin
expect 3 'half a model in one file' gpt-reshape --load-path single --save-path x
err_has "no tensor 'transformer.h.0.ln_1.weight'"
: >single/pytorch_model.bin
expect 3 'an empty file' gpt-reshape --load-path single --save-path x
err_has 'pytorch_model.bin: byte 0: 0 bytes: this is no file of torch.save()'
cp -r "$bin" bad
rm bad/pytorch_model-00002-of-00002.bin
expect 3 'a missing shard' gpt-reshape --load-path bad --save-path x
err_has 'missing, though pytorch_model.bin.index.json names it'
if [ -x "$BUILD/gpt-generate" ]; then
    expect 0 'gpt-generate loads it' gpt-generate --load "$bin" \
        --tokenizer-type NullTokenizer --vocab-size 66 --prompt '1 2 3' \
        --tokens 4
fi

# ---- cut and altered ----
for file in zip legacy; do
    size=$(wc -c <"$golden/torch/$file.pt")
    n=0
    for part in 1 3 20 100 400 900 $((size / 2)) $((size - 30)) $((size - 1))
    do
        head -c "$part" "$golden/torch/$file.pt" >cut.pt
        gpt-reshape inspect cut.pt >out 2>err
        [ $? = 3 ] && n=$((n + 1))
    done
    check "$file: every cut is found" [ $n = 9 ]
    { cat "$golden/torch/$file.pt" && echo more; } >long.pt
    expect 3 "$file: bytes after its end" gpt-reshape inspect long.pt
done

find_python zipfile || { tap_done; exit; }
cat >zips.py <<'END'
import io, pickle, sys, zipfile, struct
def archive(name, records, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(name, "w", method) as z:
        for k, v in records:
            z.writestr(k, v)
p = pickle.dumps({"a": 1}, 2)
good = [("a/data.pkl", p), ("a/byteorder", b"little"), ("a/version", b"3\n")]
archive("good.pt", good)
archive("deflated.pt", good, zipfile.ZIP_DEFLATED)
archive("up.pt", good + [("a/../../b", b"x")])
archive("root.pt", good + [("/etc/passwd", b"x")])
archive("outside.pt", good + [("b/x", b"x")])
archive("twice.pt", good + [("a/version", b"3\n")])
archive("nopickle.pt", good[1:])
archive("script.pt", good + [("a/constants.pkl", p)])
archive("big.pt", [good[0], ("a/byteorder", b"big")])
archive("version.pt", [good[0], ("a/version", b"99")])
archive("flat.pt", [("data.pkl", p)])
s = (b"\x80\x02}(X\1\0\0\0actorch._utils\n_rebuild_tensor_v2\n(("
     b"X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0%bX\3\0\0\0cpuK%ctQ"
     b"K%cK\x02\x85K%c\x85\x89ccollections\nOrderedDict\n)Rt"
     b"R"b"u.")
def view(name, key=b"0", count=b"\4", first=b"\0", stride=b"\1", data=16):
    archive(name, [("a/data.pkl", s % (key, count, first, stride)),
                   ("a/data/0", bytes(data))])
view("view.pt")
view("short.pt", data=12)
view("away.pt", key=b"1")
view("beyond.pt", first=b"\3")
view("stride.pt", stride=b"\4")
first = s % (b"0", b"\4", b"\0", b"\1")
for name, kind in (("untyped", b"X\1\0\0\0t"), ("odd", b"ctorch\nOddStorage\n")):
    archive(name + ".pt", [("a/data.pkl", first.replace(
        b"ctorch\nFloatStorage\n", kind)), ("a/data/0", bytes(16))])
sparse = first.replace(b"_rebuild_tensor_v2", b"_rebuild_sparse_tensor")
negated = first.replace(b")Rt", b")R}X\3\0\0\0neg\x88st")
for name, text in (("sparse", sparse), ("negated", negated),
                   ("module", first.replace(b"}(X\1\0\0\0a",
                                            b"}(X\n\0\0\0_modules.a")),
                   ("nothing", p)):
    archive(name + ".pt", [("a/data.pkl", text), ("a/data/0", bytes(16))])
b = bytearray(open("good.pt", "rb").read())
def change(name, at, new):
    c = bytearray(b)
    c[at:at + len(new)] = new
    open(name, "wb").write(c)
cd = b.index(b"PK\1\2")
change("crc.pt", 30 + len("a/data.pkl") + 3, b"X")
change("size.pt", cd + 20, struct.pack("<II", 1 << 30, 1 << 30))
second = b.index(b"PK\1\2", cd + 4)
change("overlap.pt", second + 42, struct.pack("<I", 1))
change("same.pt", second + 42, struct.pack("<I", 0))
end = b.index(b"PK\5\6")
change("many.pt", end + 8, struct.pack("<HH", 65535, 65535))
change("list.pt", end + 16, struct.pack("<I", 1 << 31))
END
"$python" zips.py || bail 'zips.py'
expect 0 'an archive of zipfile' gpt-reshape inspect good.pt
expect 0 'and one with a tensor' gpt-reshape inspect view.pt
refused() { # file, error
    expect 3 "$1: $2" gpt-reshape inspect "$1.pt"
    err_has "$2"
}
refused deflated 'is compressed (method 8)'
refused up 'leaves the archive'
refused root 'leaves the archive'
refused outside "is outside the archive's directory"
refused twice 'comes twice'
refused nopickle 'no record data.pkl'
refused script 'TorchScript'
refused big 'big-endian'
refused version "version '99'"
refused flat 'is in no directory'
refused short 'has 12 bytes, the pickle says 16'
refused away 'the archive has no such record'
refused beyond 'its elements end after storage'
refused stride 'its elements end after storage'
refused untyped 'a storage whose type is not the name of a class'
refused odd 'a storage of type torch.OddStorage, which is not known'
refused crc 'altered: record data.pkl'
refused size 'bytes'
refused overlap 'no header of entry'
refused same "differs from the archive's list"
refused many '65535 entries'
refused list 'the list of entries'
# Of a checkpoint, what is no plain tensor is not passed over.
no_weights() { # file, error
    cp "$1.pt" single/pytorch_model.bin
    expect 3 "$1: $2" gpt-reshape --load-path single --save-path x
    err_has "$2"
}
no_weights sparse \
    "tensor 'a' is made by torch._utils._rebuild_sparse_tensor, which is not read"
no_weights negated "tensor 'a' is of type a negative view"
no_weights module 'torch.save() was given the model: save its state_dict()'
no_weights nothing "no tensor 'transformer.wte.weight', nor any other"

# ---- at random, against PyTorch ----
if find_python 'torch, numpy, safetensors' && [ -x "$BUILD/tests/unit/test_torch.t" ]
then
    check 'sixty files at random' "$python" "$golden/make_torch.py" random 60 3
    check 'hold what PyTorch put in' "$BUILD/tests/unit/test_torch.t" random
else
    skip 'no python3 with torch (GPT_ORACLE_PYTHON)'
fi
tap_done
