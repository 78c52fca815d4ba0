#!/bin/sh
# Adapters of PEFT in gpt-reshape and gpt-generate: one that peft has made for
# the golden GPT-2 and what peft made of both (tests/golden/make_adapter.py), on
# every way to a target; what inspect shows; and adapters that are not merged.
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden
hf=$golden/hf adapter=$golden/adapter merged=$golden/adapter/merged
into() { # from to option...
    into_from=$1 into_to=$2
    shift 2
    gpt-reshape --load-path "$into_from" --save-path "$into_to" "$@"
}

expect 0 'merged' into "$hf" whole --to hf --merge-adapter "$adapter" --verify
err_has 'equals the input with its adapters merged, bit for bit'
expect 0 'as peft merges' gpt-reshape verify whole "$merged"
out_has 'bit for bit: 28 tensors'
expect 0 'by merging for it' gpt-reshape verify "$hf" "$merged" \
    --merge-adapter "$adapter"
out_has "merged equals $hf with $adapter, bit for bit"
expect 1 'else it differs' gpt-reshape verify "$hf" "$merged"
expect 0 'and by how much' gpt-reshape diff "$hf" "$merged" \
    --merge-adapter "$adapter"
out_has '28 of 28 tensors are equal'

# ---- formats and layouts of both sides ----
for to in native megatron gguf llmc; do
    name=way.$to
    [ $to = gguf ] && name=way.gguf
    expect 0 "to $to" into "$hf" $name --to $to --merge-adapter "$adapter" -q
    expect 0 "... and on" gpt-reshape verify "$merged" $name
done
expect 0 'to ranks' into "$hf" ranks --merge-adapter "$adapter" --threads 3 \
    --target-tensor-model-parallel-size 2 -q \
    --target-pipeline-model-parallel-size 2
expect 0 'the same model' gpt-reshape verify "$merged" ranks
check 'and what was merged is kept with it' \
    grep -q 'merged_adapters.*golden/adapter' ranks/*/manifest.json
for from in native megatron llmc; do
    expect 0 "a model as $from" into "$hf" base.$from --to $from -q
    expect 0 '... takes an adapter' into base.$from from.$from --to hf \
        --merge-adapter "$adapter" -q
    check '... to the same bytes' \
        cmp from.$from/model.safetensors whole/model.safetensors
done
expect 0 'ranks take one' into ranks twice --to hf -q \
    --merge-adapter "$adapter"
expect 0 'it can be merged twice' into "$hf" twice2 --to hf -q \
    --merge-adapter "$adapter" --merge-adapter "$adapter"
check 'which is the same' cmp twice/model.safetensors twice2/model.safetensors
expect 0 'and differs from once' gpt-reshape diff whole twice
out_has 'mlp.linear_fc1.weight'

# ---- what is shown ----
expect 0 'inspect' gpt-reshape inspect "$adapter"
out_has "adapter: adapter of PEFT"
out_has 'base_model_name_or_path  "tests/golden/hf"'
out_has 'lora_alpha               6'
out_has 'h.0.attn.c_attn.lora_A.weight    F32   [2, 16]'
expect 0 'as JSON' gpt-reshape inspect "$adapter" --json
out_has '"peft_type":"LORA"'
expect 0 'a plan' gpt-reshape plan "$hf" p.gguf --merge-adapter "$adapter"
out_has "merge  $adapter"
expect 0 'as JSON' gpt-reshape plan "$hf" p.gguf --merge-adapter "$adapter" \
    --json
out_has "\"adapters\":[\"$adapter\"]"

# ---- texts ----
say() {
    gpt-generate --tokenizer-type NullTokenizer --vocab-size 66 --greedy \
        --prompt '1 2 3' --tokens 6 -q "$@"
}
expect 0 'a text of the merged model' say --load "$merged"
cp out want
expect 0 'is that of the adapter' say --load "$hf" --merge-adapter "$adapter"
check 'to the token' cmp want out
if gpt-train --version | grep -q ' Gloo'; then
    expect 0 'and of two ranks' timeout 100 gpt-launch -q --standalone \
        --stdio --nproc-per-node 2 gpt-generate --load "$hf" \
        --merge-adapter "$adapter" --tokenizer-type NullTokenizer \
        --vocab-size 66 --greedy --prompt '1 2 3' --tokens 6 -q \
        --tensor-model-parallel-size 2
    check 'to the token, too' cmp want out
else
    skip 'built without Gloo'
fi
expect 3 'an adapter is no model' say --load "$adapter"
err_has '--load names its model'
expect 3 'nor for gpt-reshape' into "$adapter" x
err_has '--load-path names its model'
expect 2 'inspect merges nothing' gpt-reshape inspect "$hf" \
    --merge-adapter "$adapter"
err_has '--merge-adapter has no effect on inspect'

# ---- what is not merged ----
no() { # exit status, what, text of the message, and what perl makes of the
       # configuration
    rm -rf bad
    cp -r "$adapter" bad
    perl -0pi -e "$4" bad/adapter_config.json
    expect "$1" "$2" into "$hf" x --to hf --merge-adapter bad
    err_has "$3"
    check '... and nothing is written' test ! -e x
}
no 3 'another method' "peft_type is 'LOHA'" 's/"LORA"/"LOHA"/'
no 3 'a rank of 0' "'r' is 0" 's/"r": 2/"r": 0/'
no 3 'another rank' 'are of rank 2 and 2; adapter_config.json says 3' \
    's/"r": 2/"r": 3/'
no 3 'lengths that are lost' "no lora_magnitude_vector beside it" \
    's/"use_dora": false/"use_dora": true/'
no 3 'a rank that is no number' "'r'" 's/"r": 2/"r": "2"/'
no 3 'a pattern that is none' 'there is nothing to repeat' \
    's/mlp.c_proj": 4/*+": 4/'
no 3 'a pattern with a memory' 'this escape is not supported' \
    's/mlp.c_proj": 4/(a)\\\\1": 4/'
no 3 'a pattern that explodes' 'it is too long' \
    's/mlp.c_proj": 4/(((a{99}){99}){99}){99}": 4/'
rm -rf bad && cp -r "$adapter" bad
perl -pi -e 's/"mlp.c_proj": 4/"(((.*)*)*)*c_proj": 4/' bad/adapter_config.json
expect 0 'one that only looks so' into "$hf" slow --to hf --merge-adapter bad
check '... is followed in no time' \
    cmp slow/model.safetensors whole/model.safetensors
no 3 'parameters' "'target_parameters' is given" \
    's/"target_parameters": null/"target_parameters": ["x"]/'
no 3 'a beginning that changes the model' "init_lora_weights is 'pissa_niter_4'" \
    's/"init_lora_weights": true/"init_lora_weights": "pissa_niter_4"/'
no 3 'no object' 'adapter_config.json' 's/.*/[]/s'
rm -rf bad && mkdir bad && cp "$adapter/adapter_config.json" bad
expect 3 'without weights' into "$hf" x --merge-adapter bad
err_has 'bad: neither adapter_model.safetensors nor adapter_model.bin'
expect 4 'that is not there' into "$hf" x --merge-adapter nowhere
err_has 'nowhere: no adapter_config.json'
expect 3 'a model' into "$hf" x --merge-adapter "$hf"
err_has 'no adapter_config.json'

# Tensors by another name or of another shape.
edit() { # what perl makes of the file
    rm -rf bad
    cp -r "$adapter" bad
    perl -0777 -pi -e "$1" bad/adapter_model.safetensors
}
edit 's/h\.1\.attn\.c_attn\.lora_A/h.7.attn.c_attn.lora_A/'
expect 3 'a layer too many' into "$hf" x --merge-adapter bad
err_has 'lacks its other half'
edit 's/h\.1\.attn\.c_attn\.lora_(.)/h.7.attn.c_attn.lora_$1/g'
expect 3 'both of it' into "$hf" x --merge-adapter bad
err_has "h.7.attn.c_attn.lora_A.weight' is for 'transformer.h.7.attn.c_attn.weight', which the model"
edit 's/(c_attn\.lora_)(.)/$1.($2 eq "A" ? "B" : "A")/ge'
expect 3 'A and B changed' into "$hf" x --merge-adapter bad
err_has 'are of rank 48 and 16; adapter_config.json says 2'
edit 's/"shape":\[2,16\]/"shape":[1,32]/'
expect 3 'another shape' into "$hf" x --merge-adapter bad
err_has 'rank 1'
edit 's/h\.1\.attn\.c_attn\.lora_A/h.1.attn.c_attn.lora_X/'
expect 3 'a name of no tensor' into "$hf" x --merge-adapter bad
err_has "is none of LoRA's that are known"
# a tensor more: lengths of outputs, of which the configuration says nothing
edit 'my ($n) = unpack("Q<", $_);
    my ($head, $data) = (substr($_, 8, $n), substr($_, 8 + $n));
    my ($name) = $head =~ /"([^"]*h\.1\.attn\.c_attn\.)lora_A/;
    my ($from, $to) = (length($data), length($data) + 192);
    $head =~ s/\}\s*$/,"${name}lora_magnitude_vector":{"dtype":"F32","shape":[48],"data_offsets":[$from,$to]}}/;
    $head .= " " x (-length($head) % 8);
    $_ = pack("Q<", length($head)) . $head . $data . pack("f<", 1) x 48'
expect 3 'lengths that nothing asks for' into "$hf" x --merge-adapter bad
err_has 'a lora_magnitude_vector beside it; adapter_config.json says use_dora false'
# the output layer of a tied model has an adapter, and its table is stored twice
cat >shared.pl <<'END'
sub take {
    my $n = unpack("Q<", $_[0]);
    (substr($_[0], 8, $n), substr($_[0], 8 + $n))
}
open(my $f, "<", $ENV{base}); binmode $f; local $/;
my ($of, $all) = take(<$f>);
my ($V, $at, $end) =
    $of =~ /wte.weight":.*?\[(\d+),16\],"data_offsets":\[(\d+),(\d+)/;
my ($head, $data) = take($_);
my %more = ("lm_head.lora_A.weight" => ["2,16", pack("f<*", 1 .. 32)],
    "lm_head.lora_B.weight" => ["$V,2", pack("f<*", 1 .. 2 * $V)]);
$more{"transformer.wte.base_layer.weight"} =
    ["$V,16", substr($all, $at, $end - $at)] if $ENV{twice};
for (sort keys %more) {
    my ($from, $to) = (length($data), length($data) + length($more{$_}[1]));
    $head =~ s/\}\s*$/,"base_model.model.$_":{"dtype":"F32","shape":[$more{$_}[0]]/;
    $head .= ",\"data_offsets\":[$from,$to]}}";
    $data .= $more{$_}[1];
}
$_ = pack("Q<", length($head)) . $head . $data;
END
for twice in '' 1; do
    export twice base="$hf/model.safetensors"
    edit "$(cat shared.pl)"
    expect 0 "a shared table${twice:+ that is stored}" into "$hf" "shared$twice" \
        --to hf --merge-adapter bad
    err_has 'both get what is added'
done
check 'what is added to one of both stays' \
    cmp shared/model.safetensors shared1/model.safetensors
check 'and is no small number' sh -c \
    '! cmp -s shared/model.safetensors whole/model.safetensors'
edit 'substr($_, -4) = "\0\0\xc0\x7f"'
expect 3 'a number that is none' into "$hf" x --merge-adapter bad
err_has 'numbers that are not finite'
check 'nothing is written' test ! -e x
tap_done
