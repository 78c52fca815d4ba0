#!/usr/bin/perl
# usage: nvdisasm -c FILE.cubin | perl sass.pl FILE ARCH
#
# Looks into the machine code of the flash kernels for what the source cannot
# show: the assembler moves, splits and spills as it likes. One row a kernel, the
# worst of both types of 16 bits, then what breaks a rule; exit 1 if any does.
#
#   products   matrix instructions
#   beside     exponentials between a wait that leaves a product under way and
#              the next wait: the least of all such waits, first passes excepted.
#              0 means that the overlap of the source does not exist
#   gap        instructions from one product to the next, the median: operands'
#              descriptors are to cost one or two additions
#   branches   between products, loops and waits among them
#   r2ur       moves from vector to uniform registers between products
#   copy, sums the highest register of the warps that copy, that compute; below
#              what they ask for
#   narrow     stores to global memory of one or two bytes
#   local      accesses to local memory: spills
use strict;
use warnings;
use FindBin;
require "$FindBin::Bin/sass_code.pl";

my ($file, $arch) = @ARGV;
my $hopper = $arch =~ /90a/;

# Rules, of a kernel for Hopper and of others. Dropout's numbers come from loops
# and leave less room for registers. Of others, the loop over rows ends where the
# window of the last key does: one more branch. From sm_100 on ptxas branches
# where it set predicates before, per tile (13 for 4): a branch for each of 32
# scores is still seen.
my %most = $hopper
    ? (gap => 6, branches => 12, r2ur => 6, narrow => 0, local => 0)
    : (branches => $arch =~ /^1\d\d/ ? 18 : 7, narrow => 0, local => 0);
my %most_drop = (%most, branches => 48, r2ur => 12);
# A tile of 128 keys is 64 scores a thread, one of 64 queries is 32.
my %beside = (flash_forward => 64, flash_backward => 32);

my ($code, @order) = read_code();

# The highest register that can be reached from after the instructions that
# match, and the limit that they set.
sub highest_register {
    my ($ins, $pattern) = @_;
    my (%at, %seen, @work, $limit);
    my $top = -1;

    for my $i (0 .. $#$ins) {
        my ($kind, $text) = @{$ins->[$i]};
        $at{$text} = $i if $kind eq 'label';
        next if $kind ne 'code' || $text !~ /USETMAXREG\.$pattern/;
        push @work, $i + 1;
        $limit = hex $1 if $text =~ /\b(0x[0-9a-f]+)$/;
    }
    while (@work) {
        for (my $i = pop @work; $i <= $#$ins && !$seen{$i}++; $i++) {
            my ($kind, $text) = @{$ins->[$i]};
            next if $kind ne 'code';
            my @regs = $text =~ /\bR(\d+)\b/g;
            $_ += $text =~ /HGMMA\.64x(\d+)/ && $_ == $regs[0] ? $1 / 2 - 1 : 0
                for @regs;
            $_ > $top and $top = $_ for @regs;
            push @work, $at{$1} // next
                if $text =~ /\bBRA\b.*\(?(\.L_x_\d+)/;
            last if $text =~ /^(BRA(\.\w+)* |EXIT|RET)/ && $text !~ /DIV/;
        }
    }
    return ($top, $limit);
}

# The least number of exponentials between a wait for all but one product and
# the wait after it. In straight order: each tile is one body.
sub exponentials_beside {
    my @text = @_;
    my ($least, $count, $open);

    for (@text) {
        $count++ if $open && /MUFU\.EX2/;
        next if !/DEPBAR\.LE gsb0, (0x[0-9a-f]+)/;
        my $left = hex $1;
        $least = $count
            if $open && $count && (!defined $least || $count < $least);
        $least //= 0 if $open;
        ($open, $count) = ($left > 0, 0);
    }
    return $least // 0;
}

sub median {
    my @sorted = sort { $a <=> $b } @_;
    return @sorted ? $sorted[$#sorted / 2] : 0;
}

sub measure {
    my ($ins) = @_;
    my @text = map { $_->[1] } grep { $_->[0] eq 'code' } @$ins;
    my @at = grep { $text[$_] =~ /\b(HGMMA|HMMA|OMMA|QMMA)\b/ } 0 .. $#text;
    my %row = (products => scalar @at, gap => 0, branches => 0, r2ur => 0);

    $row{narrow} = grep { /\bSTG\.E\.[US](8|16)\b/ } @text;
    $row{local} = grep { /\b(STL|LDL)\b/ } @text;
    return \%row if !@at;
    my @between = @text[$at[0] .. $at[-1]];
    $row{gap} = median(map { $at[$_ + 1] - $at[$_] } 0 .. $#at - 1);
    $row{branches} = grep { /\b(BRA|BSSY)\b/ } @between;
    $row{r2ur} = grep { /\bR2UR\b/ } @between;
    if ($hopper) {
        $row{beside} = exponentials_beside(@text);
        ($row{copy}, $row{copy_limit}) = highest_register($ins, 'DEALLOC');
        ($row{sums}, $row{sums_limit}) = highest_register($ins, 'TRY_ALLOC');
    }
    return \%row;
}

my (%rows, @names, @faults);
for my $k (@order) {
    my @kernel = kernel_of($k);
    next if !defined $kernel[0];
    my $name = join ' ', @kernel;
    my $row = measure($code->{$k});

    push @names, $name if !$rows{$name};
    my $worst = $rows{$name} //= $row;
    for my $c (keys %$row) {
        next if !defined $row->{$c};
        my $less = $c eq 'beside' || $c =~ /limit/;
        $worst->{$c} = $row->{$c}
            if $less ? $row->{$c} < $worst->{$c} : $row->{$c} > $worst->{$c};
    }
}
push @faults, 'no kernel in it' if !@names;
for my $name (sort @names) {
    my $row = $rows{$name};
    my ($function) = $name =~ /^(\w+)/;
    my $caps = $name =~ /drop/ ? \%most_drop : \%most;

    printf "%-16s %-6s %-13s %4s %-4s %-5s", $file, $arch, split / /, $name;
    printf " %5s", $row->{$_} // '-'
        for qw(products beside gap branches r2ur copy sums narrow local);
    print "\n";
    for my $c (sort keys %$caps) {
        push @faults, "$name: $c is $row->{$c}, the most is $caps->{$c}"
            if $row->{$c} > $caps->{$c};
    }
    next if !$hopper || !$row->{products};
    push @faults, "$name: $row->{beside} exponentials beside a product, the "
        . "least is $beside{$function}"
        if $row->{beside} < ($beside{$function} // 0);
    for my $c ('copy', 'sums') {
        my ($top, $limit) = ($row->{$c}, $row->{$c . '_limit'});
        push @faults, "$name: $c uses register $top of " . ($limit // 'none')
            if !defined $limit || $top >= $limit;
    }
}
print "sass: $file $arch: $_\n" for @faults;
exit(@faults ? 1 : 0);
