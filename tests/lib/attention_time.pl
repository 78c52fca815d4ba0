#!/usr/bin/perl
# usage: attention_time.pl TIMES...        prints a table
#
# A model of time of whole attention kernels on an H100, ours and
# FlashAttention-3's (FA3), from passes that sass_time.pl has counted (TIMES: its
# tables). Computed, not measured. Both are modelled in the same way:
#
#   - a block goes over tiles, of which it does a step at a time; a step of its
#     warpgroups takes as long as the part of the multiprocessor that they share
#     takes for all, or as one alone; masked tiles cost what others do
#   - a piece of work costs one pass more, alone: its first and its last products
#     have nothing beside them
#   - 132 blocks take pieces as they become free, in the order of the kernel: most
#     to do first, but for our backward, where a block also waits until the one
#     before has added to dQ of its tile, and until that is seen (LATENCY)
#   - kernels before and after read and write memory at its speed, and nothing is
#     in the cache for them: ours computes delta (reads O and dO); FA3's also clears
#     sums of dQ, and another reads them and writes dQ. Launches cost nothing
#
# bf16, causal, 16384 tokens, a hidden size of 2048, as in FA3's paper.
use strict;
use warnings;

my ($processors, $clock, $bytes_a_cycle) = (132, 1.83e9, 3.35e12 / 1.83e9);
my ($l2, $LATENCY) = (50 << 20, 1500);

# Rows of a step's own tile and of what it goes over, warpgroups, queries (forward:
# keys) of a pass.
my %shape = (
    'forward 64'   => {rows => 192, step => 128, groups => 3, pass => 128},
    'forward 128'  => {rows => 128, step => 128, groups => 2, pass => 128},
    'backward 64'  => {rows => 128, step => 128, groups => 2, pass => 128},
    'backward 128' => {rows => 128, step => 64, groups => 2, pass => 64},
);

my %pass; # whose, which: [bound, alone]
while (<>) {
    my ($file, $function, $d, $type, $drop, @n) = split;
    next if !/^(fa3|flash_\w+_sm90a)\s/ || $drop ne '-';
    $function =~ s/^flash_//;
    $pass{$file eq 'fa3' ? 'fa3' : 'ours'}{"$function $d"} = [@n[6, 8]];
}

sub max {
    return $_[0] > $_[1] ? $_[0] : $_[1];
}

# The time when a piece ends that begins at `at`. turns: when dQ of each step of
# its head may be added to.
sub piece_end {
    my ($at, $steps, $first, $step, $alone, $turns) = @_;

    return $at + $steps * $step + $alone if !$turns;
    for my $i ($first .. $first + $steps - 1) {
        $at = max($at + $step, $turns->[$i] // 0);
        $turns->[$i] = $at + $LATENCY;
    }
    return $at + $alone;
}

# Cycles of the main kernel. wait: for turns, last rows first.
sub kernel_cycles {
    my ($shape, $pass, $t, $heads, $head_bytes, $wait) = @_;
    my ($rows, $over) = @$shape{qw(rows step)};
    my $blocks = int(($t + $rows - 1) / $rows);
    my $at_once = max(1, int($l2 / 2 / $head_bytes));
    my $step = max($shape->{groups} * $pass->[0], $pass->[1]);
    my @free = (0) x $processors;
    my $end = 0;

    for (my $first = 0; $first < $heads; $first += $at_once) {
        my $n = $first + $at_once > $heads ? $heads - $first : $at_once;
        my @turns = map { [] } 1 .. $n;
        for my $rank (0 .. $blocks - 1) {
            # Forward, rank 0 has the last queries and sees all keys; backward, the
            # first keys, which all queries see.
            my $seen = ($blocks - $rank) * $rows;
            my ($begin, $steps) = (0, int((($seen > $t ? $t : $seen) + $over - 1) / $over));
            if ($wait) {
                $begin = ($blocks - 1 - $rank) * $rows / $over;
                $steps = int(($t + $over - 1) / $over) - $begin;
            }
            for my $head (0 .. $n - 1) {
                my $i = 0;
                $free[$_] < $free[$i] and $i = $_ for 1 .. $#free;
                $free[$i] = piece_end($free[$i], $steps, $begin, $step, $pass->[1],
                    $wait && $turns[$head]);
                $end = max($end, $free[$i]);
            }
        }
    }
    return $end;
}

sub microseconds {
    my ($whose, $which, $t) = @_;
    my ($function, $d) = split / /, $which;
    my ($tokens, $heads) = (16384, 2048 / $d * 16384 / $t);
    my $rows = $tokens * 2048 / $d;
    my $pass = $pass{$whose}{$which} or die "no pass of $whose, $which\n";
    my $wait = $function eq 'backward' && $whose eq 'ours';
    my $cycles = kernel_cycles($shape{$which}, $pass, $t, $heads, $t * $d * 4, $wait);

    if ($function eq 'backward') {
        my $bytes = 4 * $d;
        $bytes += 4 * $d + 6 * $d if $whose eq 'fa3';
        $cycles += $rows * $bytes / $bytes_a_cycle;
    }
    return $cycles / $clock * 1e6;
}

printf "%-9s %4s %6s %9s %8s %9s %8s %6s\n", qw(pass d t us TFLOP/s fa3-us TFLOP/s share);
for my $which (sort { $a cmp $b } keys %shape) {
    my ($function, $d) = split / /, $which;
    for my $t (1024, 2048, 4096, 8192, 16384) {
        my @us = map { microseconds($_, $which, $t) } qw(ours fa3);
        my $products = $function eq 'forward' ? 2 : 5;
        my $flop = 2 * $products * 16384 * 2048 * $t / 2;

        printf "%-9s %4d %6d %9.0f %8.0f %9.0f %8.0f %6.2f\n", $function, $d, $t,
            $us[0], $flop / $us[0] / 1e6, $us[1], $flop / $us[1] / 1e6, $us[1] / $us[0];
    }
}
