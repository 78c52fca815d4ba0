#!/usr/bin/perl
# usage: attention_time.pl TIMES... | perl step_time.pl      prints a table
#
# A model of time of a training step of GPT-2 on one H100, ours and llm.c's, from
# the lists of kernels that they run. Computed, not measured: matrix products at
# the tensor cores' peak, all else at the memory's, attention as attention_time.pl
# says, for llm.c that of FlashAttention-3 in the place of cuDNN's, whose code is
# not known. One micro batch of 16 x 1024 tokens in bf16, nothing computed again.
#
# Both have the same products and passes over activations: sums with norms in one
# pass, GELU and its derivative within products, cross-entropy that reads logits
# once and writes gradients over them, biases' gradients by a pass over dY. They
# differ in gradients of weights (llm.c: bf16, cleared, then added to; ours: float,
# written) and so in the norm of gradients and AdamW, and in attention.
use strict;
use warnings;

my ($flops, $bytes_a_second, $n, $v) = (989.4e12, 3.35e12, 16 * 1024, 50304);
my %attention; # whose, pass: microseconds, of 16384 tokens and a hidden size of 2048
while (<STDIN>) {
    my @f = split;
    @attention{"ours $f[0]", "llm.c $f[0]"} = @f[3, 5]
        if $f[1] eq '64' && $f[2] eq '1024';
}
die "no times of attention\n" if !%attention;

# Bytes a parameter: its gradient, the norm of gradients, AdamW.
my %a_weight = ('ours' => 4 + 4 + 30, 'llm.c' => 6 + 2 + 28);

printf "%-6s %-6s %9s %10s %7s %8s %6s %5s\n", qw(model whose products attention
    passes weights step mfu);
for my $model (['124M', 12, 768], ['1.5B', 48, 1600]) {
    my ($name, $layers, $c) = @$model;
    my $weights = $layers * 12 * $c * $c;
    my $products = 6 * $n * ($weights + $c * $v) / $flops * 1e3;
    # Of a layer: two sums with norms (8 bytes an element of a row) forward, two
    # norms backward (8), biases' gradients (9 rows of 2 bytes); the last norm, and
    # the embedding; logits.
    my $passes = ($layers * (16 + 16 + 18) + 24) * $n * $c + 4 * $n * $v;

    for my $whose ('ours', 'llm.c') {
        my $attention = ($attention{"$whose forward"} + $attention{"$whose backward"})
            * $layers * $c / 2048 / 1e3;
        my $ms = $passes / $bytes_a_second * 1e3;
        my $update = $a_weight{$whose} * ($weights + $c * ($v + 1024)) / $bytes_a_second * 1e3;
        my $step = $products + $attention + $ms + $update;
        my $all = $products + 12 * $layers * $n * 1024 / 2 * $c / $flops * 1e3;

        printf "%-6s %-6s %9.2f %10.2f %7.2f %8.2f %6.2f %5.2f\n", $name, $whose,
            $products, $attention, $ms, $update, $step, $all / $step;
    }
}
