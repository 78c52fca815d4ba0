#!/usr/bin/perl
# usage: nvdisasm -c FILE.cubin | perl sass_time.pl FILE ARCH [PART=NAME,D...]
#
# PART: of the name of a kernel that is not ours; NAME and head size D to print.
#
# A model of time: what the inner loop of a kernel with matrix instructions asks
# of each part of a multiprocessor, counted in its machine code, in cycles of an
# H100 (ARCH 90a) or A100 (80) for one pass of four warps. Computed, not
# measured: what a loop cannot be faster than, not what it takes. A row a kernel:
#
#   tensor  matrix instructions: 2048 (A100: 1024) multiply-adds a cycle, of TF32
#           half as many
#   smem    operands that they read from shared memory, and loads, stores and
#           shuffles of the four warps of a warpgroup: 128 bytes a cycle; what they
#           write to global memory goes that way, too. What warps that copy have
#           the copy engine read or write is not in it
#   issue   instructions: one a cycle of each quarter of a multiprocessor, which
#           one warp of a warpgroup has for itself
#   alu     comparisons, selections, integers, conversions: 16 lanes a cycle
#   fma     multiplications and additions: 32 lanes a cycle (A100: 16)
#   mufu    exponentials: 4 lanes a cycle
#   bound   the most of these: what a pass takes when all overlaps
#   share   tensor of bound, in percent: of the device's peak, at most
#   alone   a pass of a warpgroup that runs by itself: matrix instructions, and
#           what is issued while none is under way
#
# A pass is the way through the loop that has all matrix instructions and
# otherwise the fewest instructions: masks are for tiles on the diagonal. Rates:
# CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions",
# compute capabilities 8.0 and 9.0; 989.4 TFLOP/s of 132 multiprocessors at 1.83
# GHz, 312 of 108 at 1.41.
use strict;
use warnings;
use FindBin;
require "$FindBin::Bin/sass_code.pl";

my ($file, $arch, @wanted) = @ARGV;
my %named = map { /^(.+)=(\w+),(\d+)$/ ? ($1 => [$2, $3]) : die "$_?\n" } @wanted;
my ($code, @order) = read_code();

sub is_product {
    return $_[0] =~ /\bHG?MMA\./;
}

# Basic blocks: first and last instruction, and where each goes.
sub blocks_of {
    my ($ins) = @_;
    my (@text, %label, @blocks, %starts);

    for (@$ins) {
        my ($kind, $t) = @$_;
        if ($kind eq 'label') {
            $label{$t} = @text;
            $starts{scalar @text} = 1;
        } else {
            push @text, $t;
            $starts{scalar @text} = 1 if $t =~ /\b(BRA|EXIT|RET|BRX)\b/;
        }
    }
    my @first = sort { $a <=> $b } grep { $_ < @text } keys %{{%starts, 0, 1}};
    my %block_at = map { $first[$_] => $_ } 0 .. $#first;
    for my $b (0 .. $#first) {
        my $last = ($first[$b + 1] // scalar @text) - 1;
        my $t = $text[$last];
        my @to;
        if ($t =~ /\bBRA\b.*?(\.L_x_\d+)/ && $t !~ /DIV/ && defined $label{$1}) {
            push @to, $block_at{$label{$1}} // ();
        }
        push @to, $b + 1
            if $b < $#first
            && ($t =~ /^@/ || $t !~ /^(BRA(\.\w+)*|EXIT|RET\S*|BRX)\s/)
            && $t !~ /^EXIT/;
        push @blocks, [$first[$b], $last, \@to];
    }
    return (\@text, \@blocks);
}

# The best way from block `from` to block `to`, forwards: most products, then
# fewest instructions.
sub best_way {
    my ($text, $blocks, $from, $to) = @_;
    my (%cost, %by);
    my $weight = sub {
        my ($first, $last) = @{$blocks->[$_[0]]};
        my $products = grep { is_product($_) } @$text[$first .. $last];
        return $products * 1e6 - ($last - $first + 1);
    };

    $cost{$from} = $weight->($from);
    for my $b ($from .. $to) {
        next if !defined $cost{$b};
        for my $n (@{$blocks->[$b][2]}) {
            next if $n <= $b || $n > $to;
            my $c = $cost{$b} + $weight->($n);
            ($cost{$n}, $by{$n}) = ($c, $b)
                if !defined $cost{$n} || $c > $cost{$n};
        }
    }
    return if !defined $cost{$to};
    my @way = ($to);
    unshift @way, $by{$way[0]} while $way[0] != $from;
    return ($cost{$to}, @way);
}

# The loop whose passes have the most products, the shortest of these.
sub loop_of {
    my ($text, $blocks) = @_;
    my ($best, @pass);

    for my $b (0 .. $#$blocks) {
        for my $head (grep { $_ <= $b } @{$blocks->[$b][2]}) {
            my ($cost, @way) = best_way($text, $blocks, $head, $b) or next;
            next if !@way || $cost < 1e5;
            # An outer loop has more products only if it has others.
            my $size = $b - $head;
            if (!defined $best || $size < $best) {
                ($best, @pass) = ($size, map { @$text[$blocks->[$_][0] ..
                    $blocks->[$_][1]] } @way);
            }
        }
    }
    return @pass;
}

my @parts = qw(tensor smem issue alu fma mufu);

sub count {
    my @pass = @_;
    my %n = map { $_ => 0 } @parts;
    my ($open, $alone) = (0, 0);

    for (@pass) {
        s/^@!?U?P\d+\s+//;
        $n{issue}++;
        $alone++ if !$open;
        if (/^HGMMA\.64x(\d+)x16\S*\s+(.*)/) {
            my ($columns, $operands) = ($1, $2);
            $n{tensor} += $columns / 2;
            $alone += $columns / 2;
            # b, and a where it is in shared memory, too: the descriptor of both
            # is one operand.
            $n{smem} += $columns * 32 / 128;
            $n{smem} += 16 if $operands =~ /^R\d+, gdesc/;
            $open = 1;
        } elsif (/^HMMA\.16816/) {
            # four warps, a quarter of the tensor cores each
            $n{tensor} += 16 * 8 * 16 / ($arch =~ /^8/ ? 256 : 512);
        } elsif (/^HMMA\.1688\.F32\.TF32/) {
            $n{tensor} += 16 * 8 * 8 / ($arch =~ /^8/ ? 128 : 256);
        } elsif (/DEPBAR\.LE gsb0, 0x0/) {
            $open = 0;
        } elsif (/^MUFU/) {
            $n{mufu} += 8;
        } elsif (/^(FFMA|FMUL|FADD|FMUL2|HFMA2|HADD2|HMUL2)\b/) {
            $n{fma} += $arch =~ /^8/ ? 2 : 1;
        } elsif (/^IMAD/) {
            $n{fma} += 2;
        } elsif (/^(LDS|STS|LDSM|STSM)(\S*)/) {
            $n{smem} += 4 * ($2 =~ /128|\.4/ ? 4 : $2 =~ /64|\.2/ ? 2 : 1);
        } elsif (/^(STG|REDG)(\S*)/) {
            $n{smem} += 4 * ($2 =~ /128|x4/ ? 4 : $2 =~ /64|x2/ ? 2 : 1);
        } elsif (/^SHFL/) {
            $n{smem} += 4;
        } elsif (/^(FMNMX|FSETP|FSEL|SEL|ISETP|IADD|LOP3|SHF|PRMT|F2FP|LEA|I2F
                   |F2I|VIADD|VIMNMX|IMNMX|PLOP3|MOV|POPC|FLO)/x) {
            $n{alu} += 2;
        }
    }
    # Without wgmma a warp waits for its own matrix instructions alone.
    $n{alone} = $open || grep({ /^HGMMA/ } @pass) ? $alone : 0;
    return \%n;
}

printf "%-16s %-13s %4s %-4s %-5s", 'file', 'kernel', 'd', 'type', 'drop';
printf " %6s", $_ for @parts, 'bound', 'share', 'alone';
print "\n";
my %seen;
for my $k (sort @order) {
    my ($function, $d, $type, $drop) = kernel_of($k);
    my ($part) = grep { index($k, $_) >= 0 } keys %named;
    ($function, $d) = @{$named{$part}} if defined $part;
    next if !defined $function;
    my ($text, $blocks) = blocks_of($code->{$k});
    my @pass = loop_of($text, $blocks) or next;
    my $n = count(@pass);
    my ($bound) = sort { $b <=> $a } map { $n->{$_} } @parts;

    next if $seen{"$function $d $type $drop"}++;
    printf "%-16s %-13s %4s %-4s %-5s", $file, $function, $d, $type, $drop;
    printf " %6d", $n->{$_} for @parts;
    printf " %6d %6d %6d\n", $bound, 100 * $n->{tensor} / $bound, $n->{alone};
}
